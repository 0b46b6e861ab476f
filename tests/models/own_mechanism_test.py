"""An attention mechanism of a user's own, through everything a model does.

It has a weight, another cache, and no attention weights.
"""

import keras
import numpy as np
import pytest
from keras import ops

from tests.layer_test_case import LayerTestCase
from tests.layer_test_case import saved_and_loaded
from tests.models.transformer_test import uncached_greedy
from tpt_keras import Transformer
from tpt_keras import TransformerConfig
from tpt_keras.layers import AttentionMechanism
from tpt_keras.layers import TPMultiHeadAttention

pytestmark = pytest.mark.slow_on_jax


@keras.saving.register_keras_serializable("tests")
class LinearAttention(AttentionMechanism):
    """Linear attention (Katharopoulos et al., 2020), with a learned gain.

    Its cache is the sum of all keys' products with their values, of a size
    that does not grow.
    """

    has_attention_scores = False

    def build(self, query_heads_shape, key_heads_shape, value_heads_shape):
        super().build(query_heads_shape, key_heads_shape, value_heads_shape)
        self.gain = self.add_weight(
            name="gain", shape=(self.num_heads, 1), initializer="ones"
        )

    def _features(self, heads):
        return ops.elu(heads * ops.cast(self.gain, heads.dtype)) + 1.0

    def _read(self, query_heads, sums, norms):
        q = self._features(query_heads)
        norm = ops.sum(q * norms, axis=-1, keepdims=True)
        return ops.sum(q[..., None] * sums, axis=-2) / norm, None

    def _sums(self, key_heads, value_heads, padding_mask):
        k = self._features(key_heads)
        if padding_mask is not None:
            k = k * ops.cast(padding_mask, k.dtype)[..., None, None]
        return ops.einsum("bshk,bshv->bshkv", k, value_heads), k

    def call(
        self,
        query_heads,
        key_heads,
        value_heads,
        attention_mask=None,
        use_causal_mask=False,
        start_index=0,
        training=None,
        return_weights=True,
    ):
        if attention_mask is not None:  # (batch, 1, 1, source_length)
            attention_mask = ops.squeeze(attention_mask, (1, 2))
        parts = self._sums(key_heads, value_heads, attention_mask)
        if use_causal_mask:
            sums = (ops.cumsum(part, axis=1) for part in parts)
        else:
            sums = (ops.sum(part, axis=1, keepdims=True) for part in parts)
        return self._read(query_heads, *sums)

    def make_cache(self, key_heads, value_heads, padding_mask=None):
        return tuple(
            ops.sum(part, axis=1, keepdims=True)
            for part in self._sums(key_heads, value_heads, padding_mask)
        )

    def init_cache(self, batch_size, max_length):
        shape = (batch_size, 1, self.num_heads, self.key_dim)
        return (
            ops.zeros((*shape, self.value_dim), dtype=self.compute_dtype),
            ops.zeros(shape, dtype=self.compute_dtype),
        )

    def grow_cache(self, cache, max_length):
        return cache  # sums, whatever the length

    def update_cache(self, cache, key_heads, value_heads, index):
        return tuple(
            past + part
            for past, part in zip(
                cache, self._sums(key_heads, value_heads, None)
            )
        )

    def attend(
        self,
        query_heads,
        cache,
        attention_mask=None,
        index=None,
        training=None,
        return_weights=True,
    ):
        return self._read(query_heads, *cache)


CONFIG = TransformerConfig(
    hidden_dim=16,
    intermediate_dim=16,
    num_heads=2,
    num_layers=2,
    attention="tests>LinearAttention",
    positions="none",
)
QUESTIONS = ["What is 1 + 1?", "Let z be r(7).", "7"]


def new_model(**overrides):
    keras.utils.set_random_seed(3)
    model = Transformer(CONFIG.replace(**overrides))
    for weight in model.trainable_weights:
        if "layer_norm" not in weight.path:
            # So large that answers differ and some end.
            weight.assign(weight + 0.3 * keras.random.normal(weight.shape))
    return model


class OwnMechanismTest(LayerTestCase):
    def test_cached_equals_uncached(self):
        model = new_model()
        ids = model.tokenizer.encode_questions(QUESTIONS)
        self.assert_all_equal(
            model.generate(ids, max_length=6),
            uncached_greedy(model, ids, max_length=6),
        )

    def test_trains_and_is_saved(self):
        model = new_model(num_layers=1)
        ids = model.tokenizer.encode_questions(QUESTIONS)
        inputs = {"encoder_token_ids": ids, "decoder_token_ids": ids}
        model.compile(
            "sgd",
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            # TensorFlow's graphs take ten times as long to make as they run.
            run_eagerly=keras.backend.backend() == "tensorflow",
        )
        gains = [w for w in model.trainable_weights if w.name == "gain"]
        self.assertLen(gains, 3)
        before = [ops.convert_to_numpy(w) for w in gains]
        model.fit(inputs, ids, batch_size=3, verbose=0)
        for weight, old in zip(gains, before):
            self.assertTrue(np.all(ops.convert_to_numpy(weight) != old))
        loaded = saved_and_loaded(model)
        self.assertEqual(loaded.config.attention, "tests>LinearAttention")
        self.assert_all_equal(loaded(inputs), model(inputs))

    def test_has_no_attention_weights_to_return(self):
        layer = TPMultiHeadAttention(2, 3, attention="tests>LinearAttention")
        for x in (np.ones((2, 4, 8)), keras.Input((None, 8))):
            layer(x, x)
            with self.assertRaises(ValueError):
                layer(x, x, return_attention_scores=True)


@pytest.mark.slow
@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="needs SavedModel"
)
def test_is_exported(tmp_path):
    from tpt_keras.serving import SavedModel
    from tpt_keras.serving.export import export

    model = new_model(num_layers=1)
    answers = SavedModel(export(model, tmp_path)).answer(QUESTIONS)
    assert [answer.text for answer in answers] == model.solve(QUESTIONS)
