import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.tokenizers.character_tokenizer_test import MINUTES_FIRST
from tests.tokenizers.character_tokenizer_test import NUMBERS
from tests.tokenizers.character_tokenizer_test import QUESTIONS
from tests.tokenizers.character_tokenizer_test import UNITS_FIRST
from tests.tokenizers.character_tokenizer_test import WITH_WORDS
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer
from tpt_keras.tokenizers.graph_tokenizer import GraphTokenizer

MAX_LENGTH = 6
TOKENIZER = CharacterTokenizer(
    ("<end>", "<unknown>", *"1+=é÷π日🙂", "<pad>", "<start>")
)
IN_GRAPH = GraphTokenizer(TOKENIZER, vocabulary_size=20)
# Known characters for the most part, and some more than are taken.
TEXTS = st.lists(
    st.text("1+=é÷π日🙂", max_size=MAX_LENGTH + 2) | st.text(max_size=4),
    min_size=1,
    max_size=5,
)


@pytest.mark.slow
@given(TEXTS)
def test_encodes_as_the_tokenizer_does(texts):
    check_encoding(TOKENIZER, IN_GRAPH, texts, MAX_LENGTH)


@pytest.mark.slow
@given(st.lists(QUESTIONS, max_size=4))
def test_encodes_words_as_the_tokenizer_does(texts):
    in_graph = GraphTokenizer(WITH_WORDS, len(WITH_WORDS.vocabulary))
    check_encoding(WITH_WORDS, in_graph, texts, max_length=16)


def check_encoding(tokenizer, in_graph, texts, max_length):
    ids, status = in_graph.encode(
        tf.constant([text.encode() for text in texts], tf.string),
        max_length,
        questions=True,
    )
    status = [value.decode() for value in status.numpy()]
    assert status == [
        tokenizer.question_status(text, max_length) for text in texts
    ]
    good = [text for text, state in zip(texts, status) if state == "OK"]
    if good:
        expected = tokenizer.encode_questions(good, max_length)
        encoded = ids.numpy()[np.array(status) == "OK"]
        length = expected.shape[1]
        np.testing.assert_array_equal(encoded[:, :length], expected)
        assert np.all(encoded[:, length:] == tokenizer.pad_id)


@given(st.lists(st.integers(0, 19), min_size=MAX_LENGTH, max_size=MAX_LENGTH))
def test_decodes_as_the_tokenizer_does(ids):
    # As models answer: with nothing but padding behind the end.
    if TOKENIZER.end_id in ids:
        end = ids.index(TOKENIZER.end_id)
        ids[end + 1 :] = [TOKENIZER.pad_id] * (MAX_LENGTH - end - 1)
    decoded = IN_GRAPH.decode(tf.constant([[ids]]))
    assert decoded.shape == (1, 1)
    assert decoded.numpy()[0, 0].decode() == TOKENIZER.decode(ids)


@pytest.mark.parametrize("tokenizer", [UNITS_FIRST, MINUTES_FIRST])
@given(st.lists(NUMBERS, min_size=1, max_size=4))
def test_orders_of_answers(tokenizer, texts):
    in_graph = GraphTokenizer(tokenizer, len(tokenizer.vocabulary))
    expected = tokenizer.encode_batch(texts)
    ids, status = in_graph.encode(tf.constant(texts), 100)
    np.testing.assert_array_equal(ids, expected)
    assert set(status.numpy()) == {b"OK"}
    ids = expected[:, 1:]
    # Rows of digits without an end, as of answers that were cut off.
    ids = np.where(ids == tokenizer.end_id, tokenizer.pad_id, ids)
    decoded = in_graph.decode(tf.constant(ids))
    assert [text.decode() for text in decoded.numpy()] == texts


@pytest.mark.parametrize("damaged", [b"1\xff", b"\xed\xa0\xbd", b"\xe6\x97"])
def test_bytes_that_are_no_text(damaged):
    ids, status = IN_GRAPH.encode(
        tf.constant([damaged, b"1"]), MAX_LENGTH, questions=True
    )
    assert status.numpy().tolist() == [b"INVALID_UTF8", b"OK"]
    assert ids.numpy()[1].tolist() == [*TOKENIZER.encode("1")]
