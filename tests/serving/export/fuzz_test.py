"""Whatever is asked, every question gets its own answer or its own status."""

import numpy as np
import pytest
from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from tpt_keras.tokenizers.vocabulary import CHARACTERS
from tpt_keras.tokenizers.vocabulary import MAX_QUESTION_LENGTH
from tpt_keras.tokenizers.vocabulary import SPECIAL_SYMBOLS

KNOWN_QUESTIONS = (
    "What is the units digit of 23?",
    "Solve 2*x + 3 = 0 for x.",
    "1",
    " ",
    "<pad>",
    "1<end>2",
    "{'}",
    "x" * MAX_QUESTION_LENGTH,
    "Let z(k) = -3*k + 5. What is the tens digit of z(-31)?",
)
MOST_CHARACTERS = 10_000
LARGEST_BATCH = 300

# What Python, ICU and a decoder written in a hurry may see differently.
ODD_BYTES = (
    b"\xff",
    b"\xc3",
    b"\xc0\x80",  # an overlong NUL
    b"\xe0\x80\xaf",  # an overlong slash
    b"\xed\xa0\x80",  # a surrogate
    b"\xed\xa0\xbd\xed\xb8\x80",  # a pair of them
    b"\xf4\x90\x80\x80",  # beyond Unicode
    b"\xf8\x88\x80\x80\x80",
    b"\xef\xbb\xbf",  # a byte order mark, which is valid
    b"\xef\xbf\xbe",  # a noncharacter, which is valid
    b"\xef\xbf\xbd",  # U+FFFD itself
    b"\xe2\x80\xa8",
    b"\0",
    b"\n",
    b"e\xcc\x81",
    b"\xf0\x9f\x98\x80",
)


def expected_status(question):
    """What is to be said of bytes, by Python's own means."""
    try:
        text = question.decode("utf-8")
    except UnicodeDecodeError:
        return "INVALID_UTF8"
    if len(text) > MAX_QUESTION_LENGTH:
        return "TOO_LONG"
    if not text:
        return "EMPTY"
    return "OK" if set(text) <= set(CHARACTERS) else "UNKNOWN_CHARACTER"


GOOD = st.text(CHARACTERS, min_size=1, max_size=MAX_QUESTION_LENGTH)
# Lengths from nothing to the most, and those around the limit.
LENGTHS = st.one_of(
    st.integers(MAX_QUESTION_LENGTH - 2, MAX_QUESTION_LENGTH + 2),
    st.integers(0, MOST_CHARACTERS),
)
QUESTIONS = st.one_of(
    st.sampled_from(KNOWN_QUESTIONS).map(str.encode),
    GOOD.map(str.encode),
    st.text(max_size=200).map(str.encode),
    st.binary(max_size=200),
    st.sampled_from(SPECIAL_SYMBOLS).map(str.encode),
    st.builds(
        lambda character, length: character.encode() * length,
        st.sampled_from("x1 é漢\0\N{GRINNING FACE}"),
        LENGTHS,
    ),
    # Something odd within something good.
    st.builds(
        lambda before, odd, after: before.encode() + odd + after.encode(),
        st.one_of(st.just(""), GOOD),
        st.sampled_from(ODD_BYTES),
        st.one_of(st.just(""), GOOD),
    ),
)
# A few questions many times over, in an order that mixes them.
BATCHES = st.builds(
    lambda questions, size, step: [
        questions[index * step % len(questions)] for index in range(size)
    ],
    st.lists(QUESTIONS, min_size=1, max_size=12),
    st.one_of(st.integers(0, 20), st.integers(0, LARGEST_BATCH)),
    st.sampled_from([1, 5, 7]),
)


@pytest.fixture(scope="module")
def answers_alone(served):
    """The answers to the known questions, each asked alone."""
    answers = {}
    for question in KNOWN_QUESTIONS:
        [answer], status = served.ask([question])
        assert status == ["OK"]
        answers[question.encode()] = answer
    # So that a mix-up would show.
    assert len(set(answers.values())) > len(answers) // 2
    return answers


@pytest.mark.slow
@settings(
    deadline=None,
    max_examples=100,
    derandomize=True,
    # Ten thousand characters are large.
    suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow],
)
@given(batch=BATCHES)
def test_whatever_is_asked(served, answers_alone, batch):
    outputs = served("serving_default", questions=np.array(batch, object))
    status = [value.decode() for value in outputs["status"]]
    assert status == [expected_status(question) for question in batch]
    for question, answer, log_prob, state in zip(
        batch, outputs["answers"], outputs["log_probs"], status
    ):
        if state == "OK":
            assert log_prob < 0.0
            assert np.isfinite(log_prob)
            answer = answer.decode()
            assert answer == answers_alone.get(question, answer)
        else:
            assert answer == b""
            assert log_prob == 0.0


@pytest.mark.parametrize("odd", ODD_BYTES, ids=bytes.hex)
def test_odd_bytes_alone_and_inside(served, odd):
    batch = [odd, b"1" + odd, odd + b"1", b"1" + odd + b"1", b"1"]
    _, status = served.ask(batch)
    assert status == [expected_status(question) for question in batch]
    assert status[-1] == "OK"
