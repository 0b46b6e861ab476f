import keras
import numpy as np
import pytest
from keras import ops

from tests.decoding.toy_language import ToyLanguage
from tpt_keras.decoding import BeamSampler
from tpt_keras.decoding import EarlyExit
from tpt_keras.decoding import GreedySampler
from tpt_keras.decoding import TopKSampler
from tpt_keras.decoding.generator import FIRST_CACHE_LENGTH

pytestmark = pytest.mark.skipif(
    keras.backend.backend() == "jax", reason="JAX's loops keep every size."
)


class Counted:
    """A language that records the rows and the cache length of every step.

    The tokens in its cache are `(rows, cache_length)`, as keys would be.
    """

    def __init__(self, **kwargs):
        self.language = ToyLanguage(max_length=20, **kwargs)
        self.num_rows = []
        self.cache_lengths = []

    def cache(self, beam_width, cache_length):
        cache = self.language.cache(beam_width)
        return {**cache, "tokens": cache["tokens"][:, :cache_length]}

    def grow_cache(self, cache, max_length):
        padding = max_length - ops.shape(cache["tokens"])[1]
        tokens = ops.pad(
            cache["tokens"], [(0, 0), (0, padding)], constant_values=-1
        )
        return {**cache, "tokens": tokens}

    def step(self, token_ids, cache, index):
        self.num_rows.append(len(token_ids))
        cache_length = cache["tokens"].shape[1]
        self.cache_lengths.append(cache_length)
        cache = self.grow_cache(cache, self.language.max_length)
        logits, changed = self.language.step(token_ids, cache, index)
        return logits, {"tokens": changed["tokens"][:, :cache_length]}

    def decode(self, sampler, while_loop=None, cache_length=20):
        return sampler.decode(
            **{**self.language.arguments(), "step": self.step},
            cache=self.cache(sampler.num_sequences, cache_length),
            while_loop=while_loop,
        )


@pytest.mark.parametrize(
    "sampler", [GreedySampler(), BeamSampler(3), TopKSampler(3)]
)
@pytest.mark.parametrize(
    ("num_rows", "end_bias"), [(9, 1.0), (9, 3.0), (9, -20.0), (1, 1.0)]
)
def test_finds_the_same_with_fewer_rows(num_rows, end_bias, sampler):
    language = Counted(num_rows=num_rows, end_bias=end_bias)
    expected = language.decode(sampler)
    num_steps, counted = len(language.num_rows), sum(language.num_rows)
    language.num_rows.clear()
    language.cache_lengths.clear()
    loop = EarlyExit(language.grow_cache, sampler.num_sequences)
    found = language.decode(sampler, loop, cache_length=1)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-6)
    assert len(language.num_rows) == num_steps
    ended = num_rows > 1 and end_bias > 0.0
    assert (sum(language.num_rows) < counted) == ended
    assert language.num_rows == sorted(language.num_rows, reverse=True)
    assert set(language.cache_lengths) <= {
        FIRST_CACHE_LENGTH,
        2 * FIRST_CACHE_LENGTH,
        20,
    }
    assert all(
        index < cache_length <= max(FIRST_CACHE_LENGTH, 2 * index)
        for index, cache_length in enumerate(language.cache_lengths)
    )
