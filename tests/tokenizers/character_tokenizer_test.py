import re

import pytest
from hypothesis import example
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refused
from tpt_keras.answer import WORDS
from tpt_keras.errors import UsageError
from tpt_keras.tokenizers.character_tokenizer import CHARACTERS
from tpt_keras.tokenizers.character_tokenizer import END
from tpt_keras.tokenizers.character_tokenizer import MATHEMATICS_VOCABULARY
from tpt_keras.tokenizers.character_tokenizer import PAD
from tpt_keras.tokenizers.character_tokenizer import START
from tpt_keras.tokenizers.character_tokenizer import UNKNOWN
from tpt_keras.tokenizers.character_tokenizer import VOCABULARIES
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer

TOKENIZER = CharacterTokenizer()
UNITS_FIRST = CharacterTokenizer(answer_order="units_first")
MINUTES_FIRST = CharacterTokenizer(answer_order="minutes_first")
# Texts of many numbers, points and signs.
NUMBERS = st.text("0123456789.:-/*x ", max_size=30)
each_order = pytest.mark.parametrize(
    "tokenizer", [TOKENIZER, UNITS_FIRST, MINUTES_FIRST]
)


@each_order
@given(st.text(CHARACTERS, max_size=160) | NUMBERS)
def test_decode_inverts_encode(tokenizer, text):
    token_ids = tokenizer.encode(text)
    assert len(token_ids) == len(text) + 2
    assert token_ids[0] == tokenizer.start_id
    assert token_ids[-1] == tokenizer.end_id
    assert tokenizer.decode(token_ids) == text
    # As the model answers: without the start, with something after the end.
    assert tokenizer.decode([*token_ids[1:], 5, 0]) == text


@pytest.mark.parametrize(
    ("tokenizer", "symbols"), [(UNITS_FIRST, "0-9"), (MINUTES_FIRST, "0-9:")]
)
@given(NUMBERS)
@example("9:24 PM")
def test_digits_before_a_point_are_reversed(tokenizer, symbols, text):
    reverse = re.compile(rf"(?<![{symbols}.])[{symbols}]+")
    expected = reverse.sub(lambda run: run[0][::-1], text)
    assert tokenizer.encode(text) == TOKENIZER.encode(expected)
    questions = tokenizer.encode_batch([text], questions=True)
    assert questions[0].tolist() == TOKENIZER.encode(text)


def test_an_unknown_order_is_refused():
    with refused("answer_order"):
        CharacterTokenizer(answer_order="tens_first")


@each_order
@given(
    st.lists(
        st.text(CHARACTERS, max_size=160) | NUMBERS, min_size=1, max_size=5
    )
)
def test_a_batch_is_what_one_by_one_gives(tokenizer, texts):
    batch = tokenizer.encode_batch(texts)
    assert batch.dtype == "int32"
    assert batch.shape == (len(texts), max(map(len, texts)) + 2)
    for row, text in zip(batch, texts):
        ids = tokenizer.encode(text)
        padding = [TOKENIZER.pad_id] * (len(row) - len(ids))
        assert row.tolist() == [*ids, *padding]


def test_the_default_is_the_papers_vocabulary():
    assert len(MATHEMATICS_VOCABULARY) == 72
    assert len(set(MATHEMATICS_VOCABULARY)) == 72
    assert MATHEMATICS_VOCABULARY[:3] == (PAD, START, END)
    assert "".join(MATHEMATICS_VOCABULARY[3:]) == CHARACTERS
    assert (TOKENIZER.pad_id, TOKENIZER.start_id, TOKENIZER.end_id) == (0, 1, 2)
    assert "".join(sorted(CHARACTERS)) == CHARACTERS


def test_token_ids_that_checkpoints_rely_on():
    assert TOKENIZER.encode(" 0az{}") == [1, 3, 14, 44, 69, 70, 71, 2]


def test_decode_drops_special_symbols_and_marks_unknown_ids():
    assert TOKENIZER.decode([1, 0, 15, 72, 15]) == "1\N{REPLACEMENT CHARACTER}1"


def test_another_vocabulary():
    tokenizer = CharacterTokenizer((UNKNOWN, PAD, START, END, "b", "a"))
    assert tokenizer.encode("ab") == [2, 5, 4, 3]
    assert tokenizer.decode([5, 0, 4, 3, 5]) == "ab"
    assert tokenizer.encode_questions(["a", "bab"]).tolist() == [
        [2, 5, 3, 1, 1],
        [2, 4, 5, 4, 3],
    ]
    with pytest.raises(UsageError):
        tokenizer.encode("abc")


@pytest.mark.parametrize(
    ("symbols", "named"),
    [
        ((PAD, START, END, "a", "a"), "'a'"),
        ((START, END, "a"), PAD),
        ((PAD, END, "a"), START),
        ((PAD, START, "a"), END),
        ((PAD, START, END, "a", "ab"), "'ab'"),
        ((PAD, START, END, "a", "1", "a1"), "'a1'"),
        ((PAD, START, END, "é", "éé"), "'éé'"),
        ((PAD, START, END, "a", "aa", "aa"), "'aa'"),
        ((PAD, START, END, ""), "''"),
        # One letter on paper, but two characters.
        ((PAD, START, END, "e\N{COMBINING ACUTE ACCENT}"), "'e"),
        ((PAD, START, END, "<sos>"), "<sos>"),
        *(((PAD, START, END, WORDS, x), repr(x)) for x in ("a b", " ", "", 7)),
        ((PAD, START, END, WORDS, "a\ud83d"), "ud83d"),
        ((PAD, START, END, WORDS, "aa", "aa"), "'aa'"),
        ((PAD, START, END, 7), "7"),
        ((PAD, START, END, "\ud83d"), "ud83d"),
    ],
)
def test_refuses_invalid_vocabularies(symbols, named):
    with refused(part=named):
        CharacterTokenizer(symbols)


def test_any_character_of_unicode_can_be_a_symbol():
    characters = (
        "π÷日é🙂\0\n\N{REPLACEMENT CHARACTER}\N{COMBINING ACUTE ACCENT}"
    )
    tokenizer = CharacterTokenizer((PAD, START, END, *characters))
    assert tokenizer.encode(characters) == [1, *range(3, 12), 2]
    assert tokenizer.decode(tokenizer.encode(characters)) == characters


def test_special_symbols_are_no_characters():
    with pytest.raises(UsageError):
        TOKENIZER.encode("_<pad>")
    assert TOKENIZER.decode(TOKENIZER.encode("<pad>")) == "<pad>"


@pytest.mark.parametrize(
    ("question", "max_length", "status"),
    [
        ("", 160, "EMPTY"),
        (" \t", 160, "EMPTY"),
        (" \t", 1, "TOO_LONG"),
        ("1+1", 3, "OK"),
        ("1+1", 2, "TOO_LONG"),
        ("1_1", 160, "UNKNOWN_CHARACTER"),
        ("1\ud83d", 160, "INVALID_UTF8"),
    ],
)
def test_status_and_error_agree(question, max_length, status):
    assert TOKENIZER.question_status(question, max_length) == status
    assert TOKENIZER.answer_status(" ", 1) == "OK"
    if status == "OK":
        TOKENIZER.encode_questions([question], max_length)
        return
    with refused(part=repr(question)):
        TOKENIZER.encode_questions(["1", question], max_length)


@pytest.mark.parametrize("question", [None, 5, ["1"]])
def test_refuses_what_is_no_string(question):
    with pytest.raises(UsageError):
        TOKENIZER.encode_questions([question])


def test_questions_may_come_one_by_one():
    found = TOKENIZER.encode_questions(iter(["1" * 160, "2"]))
    assert found.shape == (2, 162)


SOME = ("What", "Wh", "is", "be")
WITH_WORDS = CharacterTokenizer(
    ("Wh", *MATHEMATICS_VOCABULARY, "What", "is", "be")
)
# Words, parts of words, and what stands beside them.
QUESTIONS = st.lists(
    st.sampled_from([*SOME, *" 2-_?aeisW", "hat"]), max_size=8
).map("".join)


@given(st.lists(QUESTIONS.filter(lambda text: "_" not in text), max_size=4))
def test_words_are_whole_runs_of_letters_and_digits(texts):
    batch = WITH_WORDS.encode_batch(texts, questions=True)
    assert batch.dtype == "int32"
    assert batch.shape[0] == len(texts)
    for row, text in zip(batch, texts):
        symbols = [
            symbol
            for run in re.findall("[A-Za-z0-9]+|.", text)
            for symbol in ([run] if run in SOME else run)
        ]
        assert WITH_WORDS.split(text) == symbols
        ids = [WITH_WORDS.token_ids[symbol] for symbol in symbols]
        padding = [WITH_WORDS.pad_id] * (len(row) - len(ids) - 2)
        assert row.tolist() == [2, *ids, 3, *padding]
        assert WITH_WORDS.decode(row) == text
        # Answers are characters.
        assert len(WITH_WORDS.encode(text)) == len(text) + 2


def test_lengths_are_of_characters_and_errors_name_them():
    assert WITH_WORDS.question_status("What is", 7) == "OK"
    assert WITH_WORDS.question_status("What is", 6) == "TOO_LONG"
    assert WITH_WORDS.encode_questions(["What is"], 7).shape == (1, 5)
    with refused(part="'_'"):
        WITH_WORDS.encode_questions(["What_is"])


def test_vocabularies_have_names():
    assert VOCABULARIES["mathematics"] == MATHEMATICS_VOCABULARY
    words = VOCABULARIES["mathematics_words"]
    assert words[:72] == MATHEMATICS_VOCABULARY
    assert CharacterTokenizer(words).words == sorted(words[72:])
