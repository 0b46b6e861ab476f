"""Questions to answers in TensorFlow's graph, without writing it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tpt_keras.decoding import Generator
from tpt_keras.layers import FeedForward
from tpt_keras.models import Transformer
from tpt_keras.models import TransformerConfig
from tpt_keras.serving import export_graph
from tpt_keras.serving.export_graph import GROUP_SIZE
from tpt_keras.serving.export_graph import AnswerGraph
from tpt_keras.serving.export_graph import ConstantWeights
from tpt_keras.serving.export_graph import encode_in_groups
from tpt_keras.tokenizers.character_tokenizer import END
from tpt_keras.tokenizers.character_tokenizer import PAD
from tpt_keras.tokenizers.character_tokenizer import START


@pytest.mark.slow
def test_another_vocabulary_is_encoded_and_decoded():
    config = TransformerConfig(
        hidden_dim=8,
        intermediate_dim=16,
        num_heads=2,
        num_layers=1,
        max_question_length=5,
        max_answer_length=6,
        vocabulary=(
            *("é", "<unknown>", PAD, "b", END, "½", START, "🙂", "漢", "bb"),
        ),
        # Three rows without a symbol, which are in no answer.
        vocabulary_size=13,
    )
    model = Transformer(config)
    rng = np.random.default_rng(7)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape))
    questions = ["🙂b", "é½漢", "漢" * 5, "b", "🙂é", "bb½bb", "b🙂", "é🙂b漢"]
    expected = model.solve(questions)
    assert len(set(expected)) > 2
    assert set("".join(expected)) <= set("éb½🙂漢")
    graph = AnswerGraph(Generator(model), ConstantWeights(model))
    outputs = graph.answer(tf.constant([*questions, "é+b", "b" * 6]))
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
    monkeypatch.setattr(export_graph, "MAX_CONSTANT_BYTES", max_bytes)
    keras.utils.set_random_seed(3)
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
        # bfloat16 has eight bits.
        rtol=0.02,
    )
