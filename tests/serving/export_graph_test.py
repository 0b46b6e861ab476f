"""Questions to answers in TensorFlow's graph, without writing it."""

import hypothesis
import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from tpt_keras.decoding import Generator
from tpt_keras.layers import FeedForward
from tpt_keras.models import Transformer
from tpt_keras.models import TransformerConfig
from tpt_keras.serving import export_weights
from tpt_keras.serving.export_graph import GROUP_SIZE
from tpt_keras.serving.export_graph import AnswerGraph
from tpt_keras.serving.export_graph import encode_in_groups
from tpt_keras.serving.export_weights import ConstantWeights
from tpt_keras.tokenizers.character_tokenizer import CHARACTERS
from tpt_keras.tokenizers.character_tokenizer import END
from tpt_keras.tokenizers.character_tokenizer import MAX_QUESTION_LENGTH
from tpt_keras.tokenizers.character_tokenizer import PAD
from tpt_keras.tokenizers.character_tokenizer import START


def answer_graph(model):
    return AnswerGraph(Generator(model), ConstantWeights(model))


@pytest.mark.slow
def test_another_vocabulary_is_encoded_and_decoded():
    keras.utils.set_random_seed(8)
    config = TransformerConfig(
        hidden_dim=8,
        intermediate_dim=16,
        num_heads=2,
        num_layers=1,
        max_question_length=5,
        max_answer_length=6,
        vocabulary=("é", "<unknown>", PAD, "b", END, "½", START, "🙂", "漢"),
        # Three rows without a symbol.
        vocabulary_size=12,
    )
    model = Transformer(config)
    questions = ["🙂b", "é½漢", "漢" * 5, "b", "🙂é", "½½½", "b🙂", "é🙂b漢"]
    expected = model.solve(questions)
    assert len(set(expected)) > 2
    assert any("\N{REPLACEMENT CHARACTER}" in answer for answer in expected)
    asked = tf.constant([*questions, "é+b", "b" * 6])
    outputs = answer_graph(model).answer(asked)
    assert [answer.decode() for answer in outputs["answers"].numpy()] == [
        *expected,
        "",
        "",
    ]
    assert outputs["status"].numpy().tolist() == [
        *[b"OK"] * len(questions),
        b"UNKNOWN_CHARACTER",
        b"TOO_LONG",
    ]


@pytest.mark.slow
def test_every_character_of_unicode_has_a_status(untrained_model):
    characters = [
        chr(point)
        for point in range(0x110000)
        if not 0xD800 <= point <= 0xDFFF  # surrogates
    ]
    tokenizer = answer_graph(untrained_model).tokenizer
    _, status = tokenizer.encode_questions(tf.constant(characters), 5)
    known = {
        character
        for character, state in zip(characters, status.numpy(), strict=True)
        if state == b"OK"
    }
    assert known == set(CHARACTERS)
    assert set(status.numpy()) == {b"OK", b"UNKNOWN_CHARACTER"}


# Python, ICU and simple decoders may disagree about these.
ODD_BYTES = (
    b"\xff",
    b"\xc3",
    b"\xc0\x80",  # an overlong NUL
    b"\xe0\x80\xaf",  # an overlong slash
    b"\xed\xa0\x80",  # a surrogate
    b"\xed\xa0\xbd\xed\xb8\x80",  # a pair of surrogates
    b"\xf4\x90\x80\x80",  # beyond Unicode
    b"\xf8\x88\x80\x80\x80",
    b"\xef\xbb\xbf",  # a byte order mark, which is valid
    b"\xef\xbf\xbe",  # a noncharacter, which is valid
    b"\xef\xbf\xbd",  # U+FFFD itself
    b"\0",
    b"e\xcc\x81",
    b"\xf0\x9f\x98\x80",
)
GOOD = st.text(CHARACTERS, max_size=MAX_QUESTION_LENGTH).map(str.encode)
QUESTIONS = st.one_of(
    GOOD,
    st.text(max_size=200).map(str.encode),
    st.binary(max_size=200),
    st.builds(
        lambda character, length: character.encode() * length,
        st.sampled_from("x1 é漢\0\N{GRINNING FACE}"),
        st.integers(MAX_QUESTION_LENGTH - 2, MAX_QUESTION_LENGTH + 2)
        | st.integers(0, 10_000),
    ),
    st.tuples(GOOD, st.sampled_from(ODD_BYTES), GOOD).map(b"".join),
)


def expected_status(question):
    try:
        text = question.decode("utf-8")
    except UnicodeDecodeError:
        return b"INVALID_UTF8"
    if len(text) > MAX_QUESTION_LENGTH:
        return b"TOO_LONG"
    if not text:
        return b"EMPTY"
    return b"OK" if set(text) <= set(CHARACTERS) else b"UNKNOWN_CHARACTER"


@hypothesis.settings(
    max_examples=50,
    suppress_health_check=[
        hypothesis.HealthCheck.data_too_large,
        hypothesis.HealthCheck.too_slow,
    ],
)
@hypothesis.given(st.lists(QUESTIONS, min_size=1, max_size=12))
@hypothesis.example([b"1" + odd + b"1" for odd in ODD_BYTES])
@hypothesis.example(list(ODD_BYTES))
def test_any_question_has_its_own_answer_or_status(served, questions):
    outputs = served("serving_default", questions=np.array(questions, object))
    statuses = outputs["status"].tolist()
    assert statuses == [expected_status(question) for question in questions]
    for answer, log_prob, status in zip(
        outputs["answers"], outputs["log_probs"], statuses
    ):
        assert np.isfinite(log_prob)
        assert (log_prob < 0.0) == (status == b"OK")
        if status != b"OK":
            assert answer == b""


@pytest.mark.parametrize("num_rows", [0, 1, GROUP_SIZE + 1])
def test_groups_are_encoded_as_one_batch(num_rows):
    lengths = np.sort(np.random.default_rng(0).integers(1, 30, num_rows))
    longest = max(lengths, default=0)
    is_token = np.arange(longest) < lengths[:, np.newaxis]
    token_ids = np.where(is_token, np.arange(1, longest + 1), 0)

    def encode(token_ids):
        shape = tf.shape(token_ids)
        width = tf.fill(shape[:1], shape[1])  # of the group
        states = tf.stack([token_ids, -token_ids], -1)
        return {"width": width, "states": (states, token_ids > 0)}

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, None), tf.int32),
            tf.TensorSpec((None,), tf.int32),
        ]
    )
    def encode_all(token_ids, lengths):
        encoded = encode_in_groups(encode, token_ids, lengths)
        assert encoded["states"][0].shape.as_list() == [None, None, 2]
        return encoded

    encoded = encode_all(token_ids.astype("int32"), lengths.astype("int32"))
    states, mask = encoded["states"]
    np.testing.assert_array_equal(states[..., 0], token_ids)
    np.testing.assert_array_equal(states[..., 1], -token_ids)
    np.testing.assert_array_equal(mask, is_token)
    groups = np.split(lengths, range(GROUP_SIZE, num_rows, GROUP_SIZE))
    expected = [max(group) for group in groups for _ in group]
    np.testing.assert_array_equal(encoded["width"], expected)


def test_an_axis_of_another_size_is_refused():
    def encode(token_ids):
        return tf.zeros([tf.shape(token_ids)[0], tf.size(token_ids)])

    encode_all = tf.function(
        lambda ids, lengths: encode_in_groups(encode, ids, lengths)
    )
    with pytest.raises(tf.errors.InvalidArgumentError):
        encode_all(np.ones((2, 3), np.int32), np.array([3, 3], np.int32))


@pytest.mark.parametrize(
    ("dtype", "max_bytes", "is_constant"),
    [
        ("bfloat16", 1000, True),
        ("bfloat16", 10, False),
        ("float32", 1000, False),
    ],
)
def test_bfloat16_weights_are_constants(
    monkeypatch, dtype, max_bytes, is_constant
):
    monkeypatch.setattr(export_weights, "MAX_CONSTANT_BYTES", max_bytes)
    layer = FeedForward(4, bias_initializer="ones", dtype=dtype)
    layer.build((None, 3))
    scope = ConstantWeights(layer)

    def apply_thrice(x):
        with scope:
            _, x = tf.while_loop(
                lambda index, x: index < 2,
                lambda index, x: (index + 1, layer(x)),
                (0, layer(x)),
            )
            return x

    x = keras.ops.cast([[0.5, -1.0, 2.0]], dtype)
    expected = layer(layer(layer(x)))
    traced = tf.function(
        apply_thrice, input_signature=[tf.TensorSpec((None, 3), dtype)]
    ).get_concrete_function()
    assert len(traced.variables) == (0 if is_constant else 4)
    np.testing.assert_allclose(
        *(
            keras.ops.convert_to_numpy(y).astype("float32")
            for y in (traced(x), expected)
        ),
        atol=0.05,
    )
