import keras
import numpy as np
import pytest
from absl.testing import parameterized
from keras import ops

from tests.layer_test_case import LayerTestCase
from tests.layers.helpers import largest_tensor
from tests.layers.helpers import needs_tensorflow
from tests.refusals import refused
from tpt_keras.layers import Binding
from tpt_keras.layers import TPMultiHeadAttention
from tpt_keras.layers import make_binding

RNG = np.random.default_rng(5)
FILLER = RNG.normal(size=(2, 3, 4, 5)).astype("float32")
ROLE = RNG.normal(size=(2, 3, 4, 5)).astype("float32")
X = RNG.normal(size=(2, 4, 8)).astype("float32")
on_jax = keras.backend.backend() == "jax"


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


class BindingsTest(LayerTestCase):
    def test_discrete_roles_are_mixtures_of_unit_vectors(self):
        binding = make_binding("discrete", {"num_roles": 3})
        binding.build(FILLER.shape)
        logits = RNG.normal(size=(2, 3, 4, 3)).astype("float32")
        dictionary = ops.convert_to_numpy(binding.dictionary)
        unit = dictionary / np.linalg.norm(dictionary, axis=-1, keepdims=True)
        mixture = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        role = binding.role(logits)
        self.assert_all_close(role, mixture @ unit)
        self.assert_all_close(
            binding(FILLER, role), FILLER + FILLER * (mixture @ unit)
        )

    def test_gates_of_heads_are_single_numbers(self):
        binding = make_binding("gated", {"per_head": True})
        binding.build(FILLER.shape)
        self.assertEqual(binding.role_dim, 1)
        role = binding.role(ROLE[..., :1])
        self.assert_all_close(
            binding(FILLER, role), FILLER * sigmoid(ROLE[..., :1]), atol=1e-6
        )

    def test_product_of_a_rank_is_a_full_product(self):
        layers = [
            TPMultiHeadAttention(
                2, 3, binding="tensor", binding_options={"rank": rank}
            )
            for rank in (2, None)
        ]
        capped, full = layers
        for layer in layers:
            layer(X, X)
        for name in ("query_dense", "key_dense", "value_dense", "role_dense"):
            getattr(full, name).set_weights(getattr(capped, name).get_weights())
        kernel, bias = capped.output_dense.get_weights()
        of_product = np.einsum(
            "hfs,hrs,hso->hfro", *capped.binding.get_weights(), kernel
        )
        full.output_dense.set_weights([of_product.reshape(2, 9, 8), bias])
        self.assert_all_close(full(X, X), capped(X, X), atol=1e-6)

    @needs_tensorflow
    def test_product_of_all_heads_is_never_whole(self):
        layer = TPMultiHeadAttention(4, 8, binding="tensor")
        layer.build((32, 8, 16), (32, 8, 16))
        # The product of one head, not of four.
        self.assertEqual(
            largest_tensor(lambda x: layer(x, x), (32, 8, 16)), 32 * 8 * 8 * 8
        )

    @parameterized.parameters("float32", "mixed_bfloat16")
    def test_contraction_head_by_head_has_the_same_gradients(self, dtype):
        head_by_head = TPMultiHeadAttention(
            2, 3, binding="tensor", bias_initializer="ones", dtype=dtype
        )
        whole = TPMultiHeadAttention.from_config(head_by_head.get_config())
        for layer in (head_by_head, whole):
            layer.build(X.shape, X.shape)
        whole.set_weights(head_by_head.get_weights())
        whole.binding.bind_and_map = lambda filler, role, output_map: (
            Binding.bind_and_map(whole.binding, filler, role, output_map)
        )
        precise = dtype == "float32"
        before = head_by_head.get_weights()
        for layer in (head_by_head, whole):
            inputs = keras.Input(X.shape[1:])
            model = keras.Model(inputs, layer(inputs, inputs))
            model.compile(
                keras.optimizers.SGD(0.1), "mse", run_eagerly=not on_jax
            )
            model.fit(X, X, verbose=0)
        for one, other, old in zip(
            head_by_head.get_weights(), whole.get_weights(), before
        ):
            self.assert_all_close(
                one - old, other - old, atol=1e-6 if precise else 2e-3
            )
        self.assertTrue(np.any(one != old))

    @parameterized.parameters(
        ("tensor", {"rank": 2}, 54 + 24, 40),
        ("discrete", {"num_roles": 4}, 72 + 12, 56),
        ("gated", {"per_head": True}, 18, 56),
        ("circular_convolution", {}, 54, 56),
    )
    @pytest.mark.slow
    def test_as_a_part_of_attention(self, binding, options, role, output_map):
        self.run_layer_test(
            TPMultiHeadAttention,
            {
                "num_heads": 2,
                "key_dim": 3,
                "binding": binding,
                "binding_options": options,
            },
            inputs=[X, X],
            expected_output_shape=X.shape,
            expected_weight_count=3 * 54 + role + output_map,
            # A softmax ignores what is added to all of its logits.
            untrained_weights=["key/bias"],
        )

    @parameterized.parameters(
        ("tpr", {}, "binding"),
        ("tpt_keras>EncoderCell", {}, "binding"),
        ("hadamard", {"rank": 3}, "binding_options"),
        ("tensor", {"rank": 0}, "binding_options"),
        ("tensor", {"rank": 1.5}, "binding_options"),
        ("discrete", {"num_roles": -1}, "binding_options"),
        (make_binding("none"), {"rank": 3}, "binding_options"),
    )
    def test_errors_name_the_field(self, binding, options, field):
        with refused(field):
            make_binding(binding, options)
