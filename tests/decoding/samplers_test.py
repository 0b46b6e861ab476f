import collections

import keras
import numpy as np
import pytest
from keras import ops

from tests.decoding.toy_language import ToyLanguage
from tests.decoding.toy_language import loop_in_python
from tests.refusals import refused
from tpt_keras.compilation import compiled
from tpt_keras.decoding import SAMPLERS
from tpt_keras.decoding import BeamSampler
from tpt_keras.decoding import GreedySampler
from tpt_keras.decoding import Sampler
from tpt_keras.decoding import TopKSampler
from tpt_keras.decoding.samplers import get_sampler

pytestmark = pytest.mark.slow_on_jax

# Padding and 4 other tokens, at most 3 of them: 1 + 3 + 9 sequences that end,
# and 27 that do not.
SMALL = {"max_length": 3, "vocabulary_size": 5}
NUM_SEQUENCES = 40
IMPOSSIBLE = -1e9
# Some sequences end early, some do not.
LONG = {"num_rows": 5, "max_length": 8, "end_bias": 2.0}
HALF = {"dtype": "float16", "end_bias": 1.0}
OTHER_IDS = {"special_ids": (3, 0, 1), "end_bias": 1.0}


def decode(language, sampler, **arguments):
    """Decodes a toy language into arrays, whose form is checked."""
    found = sampler.decode(
        **{**language.arguments(), **arguments},
        cache=language.cache(sampler.num_sequences),
    )
    rows = (language.num_rows, sampler.num_sequences)
    assert {
        name: (keras.backend.standardize_dtype(x.dtype), tuple(x.shape))
        for name, x in found.items()
    } == {
        "token_ids": ("int32", (*rows, language.max_length)),
        "log_probs": ("float32", rows),
    }
    return {name: ops.convert_to_numpy(x) for name, x in found.items()}


def assert_found(found, language, expected):
    """Asserts that decoding found what a plain Python search did.

    Args:
        found: Arrays of `decode`.
        language: The `ToyLanguage`.
        expected: A list for every row: sequences with their log-probabilities,
            the best first. Sequences behind these must be impossible.
    """
    assert not any(np.any(np.isnan(values)) for values in found.values())
    for row, sequences in enumerate(expected):
        count = len(sequences)
        assert found["token_ids"][row, :count].tolist() == [
            language.padded(sequence) for sequence, _ in sequences
        ]
        np.testing.assert_allclose(
            found["log_probs"][row, :count],
            [log_prob for _, log_prob in sequences],
            rtol=1e-5,
            atol=1e-5,
        )
        assert np.all(found["log_probs"][row, count:] <= IMPOSSIBLE)


def beam_reference(language, width):
    return [
        language.beam_sequences(row, width)[0]
        for row in range(language.num_rows)
    ]


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"max_length": 1},
        {"num_rows": 8, "max_length": 9, "end_bias": 2.0},
        OTHER_IDS,
        HALF,
        {**HALF, "dtype": "bfloat16"},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "sampler", [GreedySampler(), BeamSampler(1), TopKSampler(k=1, seed=3)]
)
def test_greedy_equals_the_reference(sampler, kwargs):
    language = ToyLanguage(**kwargs)
    expected = beam_reference(language, 1)
    assert_found(decode(language, sampler), language, expected)


@pytest.mark.parametrize(
    ("kwargs", "width"),
    [(LONG, 2), (LONG, 3), ({"max_length": 1}, 3), (OTHER_IDS, 3), (HALF, 3)],
    ids=str,
)
def test_beam_equals_the_reference(kwargs, width):
    language = ToyLanguage(**kwargs)
    expected = beam_reference(language, width)
    assert_found(decode(language, BeamSampler(width)), language, expected)


@pytest.mark.parametrize("extra", [0, 5])
def test_width_of_all_sequences_finds_all_in_order(extra):
    # Padding is impossible, or the probabilities would not add up to 1.
    language = ToyLanguage(num_rows=2, possible_ids=(1, 2, 3, 4), **SMALL)
    expected = [language.all_sequences(row) for row in range(2)]
    assert [len(sequences) for sequences in expected] == [NUM_SEQUENCES] * 2
    found = decode(language, BeamSampler(NUM_SEQUENCES + extra))
    assert_found(found, language, expected)
    np.testing.assert_allclose(
        np.sum(np.exp(found["log_probs"]), axis=-1), 1.0, rtol=1e-5
    )


def test_impossible_sequences_have_impossible_log_probs():
    language = ToyLanguage(
        num_rows=2, max_length=4, vocabulary_size=4, possible_ids=(2, 3)
    )
    expected = [
        [
            scored
            for scored in language.all_sequences(row)
            if np.isfinite(scored[1])
        ]
        for row in range(2)
    ]
    # One of every length, and one without an end.
    assert [len(sequences) for sequences in expected] == [5, 5]
    found = decode(language, BeamSampler(8))
    assert_found(found, language, expected)


@pytest.mark.parametrize("sampler", [BeamSampler(3), TopKSampler(3)])
def test_rows_do_not_influence_each_other(sampler):
    language = ToyLanguage(**LONG)
    keys = ops.arange(language.num_rows, dtype="int32")
    found = decode(language, sampler)
    for row in (0, 3):
        key = keys[row : row + 1]
        alone = decode(language.only(row), sampler, row_keys=lambda k=key: k)
        np.testing.assert_array_equal(
            found["token_ids"][row], alone["token_ids"][0]
        )
        np.testing.assert_allclose(
            found["log_probs"][row], alone["log_probs"][0], rtol=1e-6
        )


@pytest.mark.parametrize(
    ("end_bias", "stops_early"), [(6.0, True), (-9.0, False)]
)
@pytest.mark.parametrize("sampler", [GreedySampler(), BeamSampler(3)])
def test_stops_when_every_sequence_has_ended(
    monkeypatch, sampler, end_bias, stops_early
):
    loop_in_python(monkeypatch)
    language = ToyLanguage(num_rows=4, max_length=12, end_bias=end_bias)
    seen = []

    def step(token_ids, cache, index):
        seen.append(int(index))
        return language.step(token_ids, cache, index)

    decode(language, sampler, step=step)
    steps_of_rows = [
        language.beam_sequences(row, sampler.num_sequences)[1]
        for row in range(language.num_rows)
    ]
    assert seen == list(range(max(steps_of_rows)))
    assert (len(seen) < language.max_length) == stops_early


@pytest.mark.parametrize("floatx", ["float64", "float16"])
@pytest.mark.parametrize(
    "sampler", [GreedySampler(), BeamSampler(3), TopKSampler(3)]
)
def test_default_dtype_does_not_matter(sampler, floatx):
    language = ToyLanguage(end_bias=1.0)
    expected = decode(language, sampler)
    before = keras.config.floatx()
    keras.config.set_floatx(floatx)
    try:
        found = decode(language, sampler)
    finally:
        keras.config.set_floatx(before)
    np.testing.assert_array_equal(found["token_ids"], expected["token_ids"])


@pytest.mark.parametrize(
    "sampler", [GreedySampler(), BeamSampler(3), TopKSampler(3)]
)
def test_compiles_for_a_batch_of_any_size(sampler):
    language = ToyLanguage(num_rows=7, end_bias=1.0)

    def decode_rows(rows):
        rows = ops.repeat(rows[:, 0], sampler.num_sequences)
        tokens = ops.full(
            (ops.shape(rows)[0], language.max_length), -1, dtype="int32"
        )
        arguments = language.arguments()
        arguments["batch_size"] = ops.shape(rows)[0] // sampler.num_sequences
        return sampler.decode(
            **arguments, cache={"row": rows, "tokens": tokens}
        )

    decode_rows = compiled(decode_rows, [])
    expected = decode(language, sampler)
    for size in (1, 7):
        found = decode_rows(np.arange(size, dtype="int32")[:, None])
        np.testing.assert_array_equal(
            found["token_ids"], expected["token_ids"][:size]
        )
        np.testing.assert_allclose(
            found["log_probs"], expected["log_probs"][:size], rtol=1e-5
        )


def draws(sampler, count=4000):
    """Counts the first tokens that rows with equal logits draw."""
    logits = ops.log(ops.array([0.9, 0.0, 1e-9, 0.1, 0.2, 0.3, 0.4], "float32"))
    found = sampler.decode(
        lambda token_ids, cache, index: (ops.tile(logits, (count, 1)), {}),
        {},
        batch_size=count,
        max_length=1,
        start_id=1,
        end_id=2,
        pad_id=0,
        token_mask=np.arange(7) > 0,
    )
    counts = collections.Counter(ops.convert_to_numpy(found["token_ids"]).flat)
    return np.array([counts[token] / count for token in range(7)])


def test_top_k_draws_by_probability():
    np.testing.assert_allclose(
        draws(TopKSampler(k=3)),
        [0, 0, 0, 0, 0.2 / 0.9, 0.3 / 0.9, 0.4 / 0.9],
        atol=0.03,
    )
    # Half the temperature squares the probabilities.
    np.testing.assert_allclose(
        draws(TopKSampler(k=99, temperature=0.5)),
        np.array([0, 0, 0, 0.01, 0.04, 0.09, 0.16]) / 0.3,
        atol=0.03,
    )


def test_top_k_draws_the_same_on_every_backend():
    found = decode(ToyLanguage(num_rows=3), TopKSampler(seed=-5))
    assert found["token_ids"].tolist() == [
        [[5, 5, 5, 3, 5]],
        [[4, 3, 1, 5, 1]],
        [[3, 5, 3, 5, 4]],
    ]


def test_log_probs_of_drawn_tokens():
    language = ToyLanguage(num_rows=9, end_bias=1.0)
    found = decode(language, TopKSampler(k=4))
    sequences = [
        [t for t in row if t != language.pad_id]
        for row in found["token_ids"][:, 0].tolist()
    ]
    np.testing.assert_allclose(
        found["log_probs"][:, 0],
        [language.log_prob(row, s) for row, s in enumerate(sequences)],
        rtol=1e-5,
    )


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: BeamSampler(0), "width"),
        (lambda: BeamSampler(2.0), "width"),
        (lambda: TopKSampler(0), "k"),
        (lambda: TopKSampler(temperature=0.0), "temperature"),
        (lambda: get_sampler("beams"), "beams"),
        (
            lambda: decode(ToyLanguage(), GreedySampler(), max_length=0),
            "max_length",
        ),
    ],
)
def test_refuses_invalid_values(make, field):
    with refused(part=field):
        make()


def test_samplers_have_names():
    for name, sampler_class in SAMPLERS.items():
        assert type(get_sampler(name)) is sampler_class
    sampler = Sampler()
    assert get_sampler(sampler) is sampler
