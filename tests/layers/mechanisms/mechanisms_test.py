"""Checks that every attention mechanism has to pass. A new one is a row."""

import warnings

import numpy as np
import pytest
from absl.testing import parameterized
from keras import ops

from tests.layer_test_case import LayerTestCase
from tests.refusals import refused
from tpt_keras.layers import ATTENTION_POSITIONS
from tpt_keras.layers import MECHANISMS
from tpt_keras.layers import TPMultiHeadAttention
from tpt_keras.layers import make_mechanism

RNG = np.random.default_rng(5)
OPTIONS = {
    "dot_product": {},
    "relative": {"max_distance": 2},
    "transformer_xl": {},
    "multi_linear": {"max_length": 8, "num_cores": 2},
    "relational": {"max_distance": 2},
}
# Every mechanism, and dot products with every kind of positions.
CASES = {name: (name, OPTIONS[name]) for name in MECHANISMS} | {
    positions: ("dot_product", {"positions": positions})
    for positions in ATTENTION_POSITIONS
}
# In an attention of 2 heads of size 3.
WEIGHTS = {
    "dot_product": 0,
    "relative": 2 * 5 * 3,
    "transformer_xl": 2 * 6 + 36,
    "multi_linear": 2 * 64 * 3 + 2 * 2 * 3,
    # Queries and keys of 2 more heads each, values of one head less.
    "relational": 2 * 54 - 27 + 3 + 5 * 3,
}
X = RNG.normal(size=(2, 4, 8)).astype("float32")


def inputs_of(mechanism, length):
    """Queries and other inputs, of 2 heads of size 4."""
    shapes = {
        "query_heads": (2, 4),
        "key_heads": (2, 4),
        "value_heads": (2 // mechanism.num_kinds, 4),
    }
    if mechanism.takes_inputs:
        shapes |= {"query": (8,), "key": (8,)}
    inputs = {
        name: ops.convert_to_tensor(
            RNG.normal(size=(2, length, *shape)), "float32"
        )
        for name, shape in shapes.items()
    }
    queries = {name: inputs.pop(name) for name in shapes if "query" in name}
    return queries, inputs


def at(inputs, step):
    return {name: x[:, step] for name, x in inputs.items()}


def built(name, **kwargs):
    mechanism = make_mechanism(*CASES[name], **kwargs)
    queries, sources = inputs_of(mechanism, 1)
    mechanism.build(
        **{f"{key}_shape": x.shape for key, x in (queries | sources).items()}
    )
    mechanism.set_weights([RNG.normal(size=w.shape) for w in mechanism.weights])
    return mechanism


class MechanismsTest(LayerTestCase):
    @parameterized.parameters(
        "relative", "transformer_xl", "multi_linear", "relational"
    )
    @pytest.mark.slow
    def test_layer(self, name):
        self.run_layer_test(
            TPMultiHeadAttention,
            {
                "num_heads": 2,
                "key_dim": 3,
                "attention": name,
                "attention_options": OPTIONS[name],
            },
            inputs=[X, X],
            expected_output_shape=X.shape,
            expected_weight_count=4 * 54 + 56 + WEIGHTS[name],
            # A softmax ignores what is added to all of its logits.
            untrained_weights=["key/bias"] * (name != "multi_linear"),
            takes_keras_masks=name != "multi_linear",
        )

    @parameterized.parameters(*CASES)
    def test_cached_equals_uncached(self, name):
        mechanism = built(name)
        queries, sources = inputs_of(mechanism, 5)
        tolerance = 1e-4 if name == "multi_linear" else 1e-5
        expected, _ = mechanism(**queries, **sources, use_causal_mask=True)
        cache = mechanism.init_cache(2, 2)
        for index in range(5):
            step, room = slice(index, index + 1), 2 if index < 2 else 7
            cache = mechanism.grow_cache(cache, room)
            cache = mechanism.update_cache(
                cache, **at(sources, step), index=ops.array(index)
            )
            filler, weights = mechanism.attend(
                **at(queries, step), cache=cache, index=ops.array(index)
            )
            if mechanism.has_attention_scores:
                self.assertEqual(weights.shape, (2, 2, 1, room))
            self.assert_all_close(
                filler, expected[:, step], tolerance, tolerance
            )

    @parameterized.parameters(*CASES)
    def test_whole_cache_equals_a_call(self, name):
        mechanism = built(name)
        queries, sources = inputs_of(mechanism, 5)
        is_real = np.array([[1, 1, 1, 0, 1], [1, 0, 0, 0, 0]], "bool")
        mask = is_real[:, None, None]
        expected, _ = mechanism(**queries, **sources, attention_mask=mask)
        cache = mechanism.make_cache(**sources, padding_mask=is_real)
        filler, _ = mechanism.attend(
            **queries, cache=cache, attention_mask=mask
        )
        self.assert_all_close(filler, expected)

    @parameterized.product(name=[*CASES], use_causal_mask=(False, True))
    def test_the_filler_is_the_same_without_weights(
        self, name, use_causal_mask
    ):
        # The second row masks all of its keys.
        mask = np.array([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0]], "bool")
        arguments = {
            "attention_mask": mask[:, None, None],
            "use_causal_mask": use_causal_mask,
        }
        mechanism = built(name)
        if mechanism.has_attention_scores:
            mechanism.sliding_window = 3
        queries, sources = inputs_of(mechanism, 5)
        arguments |= {**queries, **sources}
        expected, _ = mechanism(**arguments)
        filler, _ = mechanism(**arguments, return_weights=False)
        self.assert_all_close(filler, expected)

    @parameterized.parameters(*CASES)
    def test_config(self, name):
        mechanism = make_mechanism(*CASES[name], dropout=0.5, seed=3)
        revived = type(mechanism).from_config(mechanism.get_config())
        self.assertEqual(revived.get_config(), mechanism.get_config())

    @parameterized.product(name=[*CASES], sliding_window=[None, 2])
    def test_queries_after_a_memory(self, name, sliding_window):
        mechanism = built(name)
        if mechanism.has_attention_scores:
            mechanism.sliding_window = sliding_window
        queries, sources = inputs_of(mechanism, 5)
        expected = mechanism(**queries, **sources, use_causal_mask=True)
        filler, weights = mechanism(
            **at(queries, slice(2, None)),
            **sources,
            use_causal_mask=True,
            start_index=2,
        )
        self.assert_all_close(filler, expected[0][:, 2:])
        if mechanism.has_attention_scores:
            self.assert_all_close(weights, expected[1][:, :, 2:])

    @parameterized.product(
        name=[*CASES], targets_and_sources=[(0, 3), (0, 1), (3, 0), (0, 0)]
    )
    def test_no_queries_or_no_keys(self, name, targets_and_sources):
        mechanism = built(name)
        targets, sources = targets_and_sources
        queries, _ = inputs_of(mechanism, targets)
        _, sources = inputs_of(mechanism, sources)
        filler, _ = mechanism(**queries, **sources)
        self.assertEqual(tuple(filler.shape), (2, targets, 2, 4))

    @parameterized.parameters(*CASES)
    def test_a_single_key_gives_no_warning(self, name):
        mechanism = built(name)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            queries, sources = inputs_of(mechanism, 1)
            mechanism(**queries, **sources)

    def test_rotary_positions_need_an_even_size(self):
        layer = TPMultiHeadAttention(
            2, 3, attention_options={"positions": "rotary"}
        )
        with refused("key_dim"):
            layer(X, X)

    @parameterized.parameters(
        ("dot", None, "attention"),
        ("tpt_keras>EncoderCell", None, "attention"),
        ("elsewhere>Attention", None, "attention"),
        ("dot_product", {"rank": 2}, "attention_options"),
        ("relative", {"max_distance": 0}, "attention_options"),
        ("relational", {"max_distance": 0}, "attention_options"),
        ("multi_linear", {"max_length": 0}, "attention_options"),
        ("multi_linear", {"num_cores": 1.5}, "attention_options"),
        ("multi_linear", {"output_dim": 0}, "attention_options"),
        ("multi_linear", {"sliding_window": 3}, "attention_options"),
        ("dot_product", {"sliding_window": 0}, "attention_options"),
        ("dot_product", {"positions": "learned"}, "attention_options"),
        ("relative", {"positions": "rotary"}, "attention_options"),
        ("multi_linear", {"positions": "rotary"}, "attention_options"),
        ("relative", {"flash_attention": True}, "attention_options"),
    )
    def test_errors_name_the_field(self, name, options, field):
        with refused(field):
            make_mechanism(name, options)
