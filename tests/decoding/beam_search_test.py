import keras
import numpy as np
import pytest
from keras import ops

from tests.decoding.compiled import compiled
from tests.decoding.toy_language import ToyLanguage
from tests.decoding.toy_language import loop_in_python
from tests.decoding.toy_language import score
from tpt_keras.decoding import beam_search
from tpt_keras.decoding import greedy_search
from tpt_keras.errors import UsageError

# Of padding and 4 other tokens, at most 3 of them: 1 + 3 + 9 sequences that
# end, and the 27 that do not.
SMALL = {"max_length": 3, "vocabulary_size": 5}
NUM_SEQUENCES = 40
IMPOSSIBLE = -1e9


def search(language, beam_width, length_penalty=0.0):
    """The result of `beam_search` as arrays, its form checked."""
    found = beam_search(
        **language.arguments(),
        cache=language.cache(beam_width),
        beam_width=beam_width,
        length_penalty=length_penalty,
    )
    beams = (language.num_rows, beam_width)
    expected_form = {
        "token_ids": ("int32", (*beams, language.max_length)),
        "log_probs": ("float32", beams),
        "scores": ("float32", beams),
    }
    form = {
        name: (keras.backend.standardize_dtype(x.dtype), tuple(x.shape))
        for name, x in found.items()
    }
    assert form == expected_form
    return {name: ops.convert_to_numpy(x) for name, x in found.items()}


def assert_found(found, language, expected, length_penalty):
    """Asserts that a result is what a plain Python search found.

    Args:
        found: What `search` returned.
        language: The `ToyLanguage` that was searched.
        expected: A list for every row: sequences with their log-probabilities,
            the best first. Beams behind these must be impossible.
        length_penalty: What they were searched with.
    """
    assert not any(np.any(np.isnan(values)) for values in found.values())
    for row, sequences in enumerate(expected):
        count = len(sequences)
        assert found["token_ids"][row, :count].tolist() == [
            language.padded(sequence) for sequence, _ in sequences
        ]
        for name, values in (
            ("log_probs", [log_prob for _, log_prob in sequences]),
            ("scores", [score(*s, length_penalty) for s in sequences]),
        ):
            np.testing.assert_allclose(
                found[name][row, :count], values, rtol=1e-5, atol=1e-5
            )
        assert np.all(found["log_probs"][row, count:] <= IMPOSSIBLE)


def reference(language, beam_width, length_penalty=0.0):
    """What a beam search in plain Python finds in every row."""
    return [
        language.beam_sequences(row, beam_width, length_penalty)[0]
        for row in range(language.num_rows)
    ]


# Some sequences end early, some do not.
LONG = {"num_rows": 5, "max_length": 8, "end_bias": 2.0}
HALF = {"dtype": "float16", "end_bias": 1.0}


@pytest.mark.parametrize("kwargs", [{}, LONG, {"max_length": 1}], ids=str)
def test_a_width_of_1_is_greedy_search(kwargs):
    language = ToyLanguage(**kwargs)
    token_ids, log_probs = greedy_search(
        **language.arguments(), cache=language.cache()
    )
    found = search(language, beam_width=1)
    np.testing.assert_array_equal(found["token_ids"][:, 0], token_ids)
    np.testing.assert_allclose(found["log_probs"][:, 0], log_probs, rtol=1e-6)
    np.testing.assert_array_equal(found["scores"], found["log_probs"])


@pytest.mark.parametrize(
    ("kwargs", "beam_width"),
    [
        (HALF, 1),
        ({}, 2),
        (LONG, 2),
        (LONG, 3),
        ({"max_length": 1}, 3),
        # Padding is not token 0.
        ({"special_ids": (3, 0, 1), "end_bias": 1.0}, 3),
        (HALF, 3),
        ({**HALF, "dtype": "bfloat16"}, 3),
    ],
    ids=str,
)
def test_equals_the_reference(kwargs, beam_width):
    language = ToyLanguage(**kwargs)
    expected = reference(language, beam_width)
    assert_found(search(language, beam_width), language, expected, 0.0)


@pytest.mark.parametrize("length_penalty", [0.6, 2.0, -1.0])
@pytest.mark.parametrize("beam_width", [1, 2, 3])
def test_equals_the_reference_with_a_length_penalty(beam_width, length_penalty):
    language = ToyLanguage(
        seed=1, num_rows=20, max_length=6, vocabulary_size=4, end_bias=0.5
    )
    expected = reference(language, beam_width, length_penalty)
    found = search(language, beam_width, length_penalty)
    assert_found(found, language, expected, length_penalty)
    # It matters, unless all that is compared is of one length.
    matters = expected != reference(language, beam_width)
    assert matters == (beam_width > 1)


@pytest.mark.parametrize("extra", [0, 5])
@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 2.0])
def test_a_width_of_all_sequences_finds_all_in_order(length_penalty, extra):
    # Padding has no probability, or all others would not add up to 1.
    language = ToyLanguage(num_rows=2, possible_ids=(1, 2, 3, 4), **SMALL)
    expected = [language.all_sequences(row, length_penalty) for row in range(2)]
    assert [len(sequences) for sequences in expected] == [NUM_SEQUENCES] * 2
    found = search(language, NUM_SEQUENCES + extra, length_penalty)
    assert_found(found, language, expected, length_penalty)
    # All there is.
    np.testing.assert_allclose(
        np.sum(np.exp(found["log_probs"]), axis=-1), 1.0, rtol=1e-5
    )


def test_there_is_something_to_find():
    """A beam finds better than greedy search does, and not always the best."""
    language = ToyLanguage(seed=1, num_rows=20, **SMALL)
    greedy, beam, best = (
        search(language, beam_width)["log_probs"][:, 0]
        for beam_width in (1, 2, NUM_SEQUENCES)
    )
    assert np.any(beam > greedy + 1e-3)
    assert np.any(best > beam + 1e-3)


def test_rows_have_no_influence_on_each_other():
    language = ToyLanguage(**LONG)
    found = search(language, beam_width=3)
    for row in (0, 3):
        alone = search(language.only(row), beam_width=3)
        np.testing.assert_array_equal(
            found["token_ids"][row], alone["token_ids"][0]
        )
        for name in ("log_probs", "scores"):
            np.testing.assert_allclose(
                found[name][row], alone[name][0], rtol=1e-6
            )


def test_the_cache_follows_its_beam(monkeypatch):
    loop_in_python(monkeypatch)
    # Some beams end, and go on with padding.
    language = ToyLanguage(num_rows=4, max_length=6, end_bias=1.0)
    histories = []

    def step(token_ids, cache, index):
        logits, cache = language.step(token_ids, cache, index)
        histories.append(ops.convert_to_numpy(cache["tokens"]))
        return logits, cache

    def search_for(max_length):
        found = beam_search(
            **{**language.arguments(), "step": step, "max_length": max_length},
            cache=language.cache(3),
            beam_width=3,
        )
        return ops.convert_to_numpy(found["token_ids"])

    prefixes = {length: search_for(length) for length in (1, 3)}
    histories.clear()
    whole = search_for(6)
    assert len(histories) == 6
    # What is best in the end does not go on from what was best before.
    assert not np.array_equal(whole[..., :3], prefixes[3])
    for length, prefix in prefixes.items():
        np.testing.assert_array_equal(
            histories[length][:, 1 : length + 1], prefix.reshape(12, length)
        )


@pytest.mark.parametrize(
    ("end_bias", "stops_early"), [(6.0, True), (4.0, True), (-9.0, False)]
)
@pytest.mark.parametrize("beam_width", [1, 3])
def test_stops_when_every_beam_has_ended(
    monkeypatch, beam_width, end_bias, stops_early
):
    loop_in_python(monkeypatch)
    language = ToyLanguage(num_rows=4, max_length=12, end_bias=end_bias)
    seen = []

    def step(token_ids, cache, index):
        seen.append(int(index))
        return language.step(token_ids, cache, index)

    beam_search(
        **{**language.arguments(), "step": step},
        cache=language.cache(beam_width),
        beam_width=beam_width,
    )
    steps_of_rows = [
        language.beam_sequences(row, beam_width)[1]
        for row in range(language.num_rows)
    ]
    assert seen == list(range(max(steps_of_rows)))
    assert (len(seen) < language.max_length) == stops_early


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_what_cannot_be_is_told_from_what_can(length_penalty):
    """Tokens of probability 0 leave fewer sequences than there are beams."""
    language = ToyLanguage(
        num_rows=2, max_length=4, vocabulary_size=4, possible_ids=(2, 3)
    )
    expected = [
        [
            scored
            for scored in language.all_sequences(row, length_penalty)
            if np.isfinite(scored[1])
        ]
        for row in range(2)
    ]
    # One of every length, and the one that does not end.
    assert [len(sequences) for sequences in expected] == [5, 5]
    found = search(language, 8, length_penalty)
    assert_found(found, language, expected, length_penalty)


@pytest.mark.parametrize(
    ("name", "value"),
    [("beam_width", 0), ("max_length", -2), ("length_penalty", np.nan)],
)
def test_arguments_that_make_no_sense(name, value):
    language = ToyLanguage()
    arguments = {**language.arguments(), "beam_width": 2, name: value}
    with pytest.raises(UsageError, match=f"{name} .* {value}"):
        beam_search(**arguments, cache=language.cache(2))


@pytest.mark.parametrize("floatx", ["float64", "float16"])
def test_keras_default_dtype_does_not_matter(floatx):
    language = ToyLanguage(end_bias=1.0)
    expected = reference(language, 3, 1.0)
    before = keras.config.floatx()
    keras.config.set_floatx(floatx)
    try:
        found = search(language, 3, 1.0)
    finally:
        keras.config.set_floatx(before)
    assert_found(found, language, expected, 1.0)


@pytest.mark.parametrize("beam_width", [1, 3])
def test_compiles_for_a_batch_of_any_size(beam_width):
    language = ToyLanguage(num_rows=7, end_bias=1.0)

    def search_rows(rows):
        num_rows = ops.shape(rows)[0]
        cache = {
            "row": ops.repeat(rows, beam_width),
            "tokens": ops.full(
                (num_rows * beam_width, language.max_length), -1, dtype="int32"
            ),
        }
        return beam_search(
            **{**language.arguments(), "batch_size": num_rows},
            cache=cache,
            beam_width=beam_width,
            length_penalty=0.6,
        )

    search_rows = compiled(search_rows, [None])
    expected = search(language, beam_width, length_penalty=0.6)
    for size in (1, 7):
        found = search_rows(np.arange(size, dtype="int32"))
        np.testing.assert_array_equal(
            found["token_ids"], expected["token_ids"][:size]
        )
        for name in ("log_probs", "scores"):
            np.testing.assert_allclose(
                found[name], expected[name][:size], rtol=1e-5
            )
