"""Questions to answers in TensorFlow's graph, without writing it to disk."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tpt_keras.decoding import BeamSampler
from tpt_keras.decoding import Generator
from tpt_keras.models import Transformer
from tpt_keras.models import TransformerConfig
from tpt_keras.serving.export.question_answering import QuestionAnswering
from tpt_keras.tokenizers.vocabulary import CHARACTERS
from tpt_keras.tokenizers.vocabulary import END
from tpt_keras.tokenizers.vocabulary import PAD
from tpt_keras.tokenizers.vocabulary import START


def ask(answering, questions, method="answer"):
    """Lists of answers, from a graph as an export has it."""
    graph = tf.function(
        getattr(answering, method),
        input_signature=[tf.TensorSpec((None,), tf.string)],
    )
    outputs = graph(tf.constant(questions, tf.string))
    return {name: value.numpy().tolist() for name, value in outputs.items()}


def text(values):
    return [value.decode() for value in values]


@pytest.fixture(scope="module")
def short_model():
    """A model with something to say, and not always the same."""
    keras.utils.set_random_seed(7)
    return Transformer.from_preset(
        "tp_transformer_tiny",
        hidden_dim=16,
        intermediate_dim=32,
        num_heads=2,
        num_layers=1,
        max_question_length=5,
        max_answer_length=3,
    )


@pytest.mark.slow
def test_the_limits_of_a_model(short_model):
    outputs = ask(
        QuestionAnswering(Generator(short_model)), ["12345", "123456"]
    )
    assert outputs["status"] == [b"OK", b"TOO_LONG"]
    assert text(outputs["answers"]) == [*short_model.solve(["12345"]), ""]
    assert len(outputs["answers"][0]) == 3


@pytest.mark.slow
@pytest.mark.parametrize("max_answer_length", [1, 9])
def test_another_limit_of_answers(short_model, max_answer_length):
    questions = ["12345", "1", "a+b"]
    outputs = ask(
        QuestionAnswering(Generator(short_model, max_length=max_answer_length)),
        questions,
    )
    token_ids = keras.ops.convert_to_numpy(
        short_model.generate(
            short_model.tokenizer.encode_questions(questions),
            max_answer_length,
        )
    )
    answers = text(outputs["answers"])
    assert answers == [short_model.tokenizer.decode(row) for row in token_ids]
    assert max(map(len, answers)) == max_answer_length
    beams = QuestionAnswering(
        Generator(short_model, BeamSampler(3), max_answer_length)
    )
    n_best = ask(beams, questions, "answer_n_best")["answers"]
    lengths = [len(answer) for row in n_best for answer in text(row)]
    assert max(lengths) == max_answer_length


@pytest.mark.slow
@pytest.mark.parametrize(
    ("beam_width", "length_penalty"), [(1, 0.6), (2, 0.0), (5, 2.0)]
)
def test_the_best_come_first(short_model, beam_width, length_penalty):
    questions = ["12345", "", "1"]
    sampler = BeamSampler(beam_width, length_penalty)
    answering = QuestionAnswering(Generator(short_model, sampler))
    n_best = ask(answering, questions, "answer_n_best")
    assert n_best["status"] == [b"OK", b"EMPTY", b"OK"]
    for name in ("answers", "log_probs", "scores"):
        assert np.shape(n_best[name]) == (3, beam_width)
    assert np.all(np.diff(n_best["scores"], axis=1) <= 0.0)
    best = ask(answering, questions)
    for name in ("answers", "log_probs"):
        assert best[name] == [row[0] for row in n_best[name]]
    if length_penalty == 0.0:
        assert n_best["scores"] == n_best["log_probs"]


@pytest.mark.slow
def test_another_vocabulary():
    """Other symbols in another order, and rows without a symbol."""
    keras.utils.set_random_seed(8)
    config = TransformerConfig(
        hidden_dim=8,
        intermediate_dim=16,
        num_heads=2,
        num_layers=1,
        max_answer_length=6,
        vocabulary=("é", "<unknown>", PAD, "b", END, "½", START, "🙂", "漢"),
        vocabulary_size=12,
    )
    model = Transformer(config)
    questions = ["🙂b", "é½漢", "漢" * 160, "b", "🙂é", "½½½", "b🙂", "é🙂b漢"]
    expected = model.solve(questions)
    assert len(set(expected)) > 2
    # Also of a row that no symbol belongs to: both say so in the same way.
    assert any("\N{REPLACEMENT CHARACTER}" in answer for answer in expected)
    outputs = ask(QuestionAnswering(Generator(model)), [*questions, "é+b"])
    assert text(outputs["answers"]) == [*expected, ""]
    assert text(outputs["status"]) == [
        *["OK"] * len(questions),
        "UNKNOWN_CHARACTER",
    ]


@pytest.mark.slow
def test_every_character_of_unicode(short_model):
    """Each is a question of its own: known, or not, but never an error."""
    characters = [
        chr(point)
        for point in range(0x110000)
        if not 0xD800 <= point <= 0xDFFF  # surrogates are no characters
    ]
    # What answers are computed from, without computing a million.
    tokenizer = QuestionAnswering(Generator(short_model)).tokenizer
    _, status = tokenizer.encode_questions(tf.constant(characters), 5)
    known = {
        character
        for character, state in zip(characters, status.numpy(), strict=True)
        if state == b"OK"
    }
    assert known == set(CHARACTERS)
    assert set(status.numpy()) == {b"OK", b"UNKNOWN_CHARACTER"}
