"""Tokens that are words: in Python, and in TensorFlow's graph."""

import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refused
from tests.tokenizers.graph_tokenizer_test import check_encoding
from tpt_keras.answer import explain
from tpt_keras.tokenizers import CharacterTokenizer
from tpt_keras.tokenizers import vocabulary_of
from tpt_keras.tokenizers.character_tokenizer import ALL_BLANKS
from tpt_keras.tokenizers.graph_tokenizer import GraphTokenizer

LONG = "x" * 200
MANY = tuple(f"w{n}" for n in range(50_000))
WORDS = ("jump", "I_JUMP", "né", "日", "7", "3", ".", LONG)
TOKENIZER = CharacterTokenizer(vocabulary_of(WORDS + MANY, tokens="words"))
BLANKS = (" ", "  ", "\t", "\n", "\xa0", "\u3000 ", "\u2028", "\x1c", "\x85")
# Words and blanks, for the most part known.
TEXTS = st.lists(
    st.sampled_from([*WORDS, *BLANKS, "<pad>", "<words>"]), max_size=9
).map("".join)


def test_blanks_are_those_of_python():
    characters = list(map(chr, range(sys.maxunicode + 1)))
    blanks = set(filter(str.isspace, characters))
    assert set(filter(re.compile(ALL_BLANKS).fullmatch, characters)) == blanks


@pytest.mark.parametrize("blank", BLANKS)
def test_texts_are_split_at_blanks_and_joined_by_one(blank):
    text = f"{blank}jump{blank}né{blank}"
    assert TOKENIZER.split(text) == ["jump", "né"]
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == "jump né"
    assert TOKENIZER.question_status(text, 2) == "OK"
    assert TOKENIZER.question_status(blank) == "EMPTY"
    assert TOKENIZER.answer_status(blank, 1) == "OK"


@pytest.mark.parametrize(
    ("question", "status", "named"),
    [
        (LONG, "OK", ""),
        ("jump " * 161, "TOO_LONG", "161 words"),
        ("jump jumps", "UNKNOWN_WORD", "'jumps'"),
        ("jump" * 60, "UNKNOWN_WORD", "'jumpjump"),
        ("jump <pad>", "UNKNOWN_WORD", "word"),
        ("jump \ud83d", "INVALID_UTF8", "UTF-8"),
    ],
)
def test_statuses_and_errors_name_words(question, status, named):
    assert TOKENIZER.question_status(question) == status
    reason = explain(question, status, TOKENIZER.vocabulary, 160)
    assert named in reason
    assert len(reason) < 200
    if status != "OK":
        with refused(part=named):
            TOKENIZER.encode_questions([question])


def test_special_symbols_are_no_words():
    assert vocabulary_of(["a <pad> <words>"], "words")[3:] == ("<words>", "a")
    with refused("tokens"):
        vocabulary_of(["a"], "syllables")


@pytest.mark.parametrize("order", ["as_written", "units_first"])
@pytest.mark.slow
@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_the_graph_does_the_same(order, texts):
    tokenizer = CharacterTokenizer(TOKENIZER.vocabulary, order)
    in_graph = GraphTokenizer(tokenizer, 60_000)
    check_encoding(tokenizer, in_graph, texts, max_length=4)
    good = [x for x in texts if tokenizer.answer_status(x, 9) == "OK"]
    ids, status = in_graph.encode(good or [""], 9)
    assert set(status.numpy()) == {b"OK"}
    decoded = [text.decode() for text in in_graph.decode(ids).numpy()]
    assert decoded == [" ".join(text.split()) for text in good or [""]]
