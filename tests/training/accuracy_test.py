"""Tests of both accuracies, which share their way of counting."""

import keras
import numpy as np
import pytest

from tpt_keras.training.sequence_accuracy import SequenceAccuracy
from tpt_keras.training.token_accuracy import TokenAccuracy

# 0 is padding, 2 the end symbol.
TARGETS = np.array([[3, 4, 2, 0], [3, 2, 0, 0], [5, 6, 3, 2], [2, 0, 0, 0]])


def logits_of(predicted, vocabulary_size=7):
    """Random logits of which the predicted symbol's is the largest."""
    rng = np.random.default_rng(1)
    noise = rng.uniform(0.0, 1.0, (*predicted.shape, vocabulary_size))
    return (noise + 2.0 * np.eye(vocabulary_size)[predicted]).astype("float32")


def both(targets, predicted, sample_weight=None):
    """Both accuracies of one batch."""
    values = []
    for metric in (SequenceAccuracy(pad_id=0), TokenAccuracy(pad_id=0)):
        metric.update_state(targets, logits_of(predicted), sample_weight)
        values.append(float(metric.result()))
    return values


@pytest.mark.parametrize(
    ("changes", "sequences", "tokens"),
    [
        ([], 4, 10),
        # What stands where the target is padding is not looked at.
        ([(0, 3, 5), (3, 1, 6), (1, 2, 2)], 4, 10),
        # A wrong first, middle or last character.
        ([(2, 0, 3)], 3, 9),
        ([(0, 1, 3)], 3, 9),
        ([(2, 2, 6)], 3, 9),
        # The right characters and no end.
        ([(1, 1, 3)], 3, 9),
        # An end too early, padding instead of a character.
        ([(0, 1, 2)], 3, 9),
        ([(2, 1, 0)], 3, 9),
        # The answer of no characters: its end alone.
        ([(3, 0, 4)], 3, 9),
        # Two wrong characters in one answer, and in two.
        ([(2, 0, 3), (2, 1, 3)], 3, 8),
        ([(2, 0, 3), (0, 0, 4)], 2, 8),
    ],
)
def test_counts(changes, sequences, tokens):
    predicted = TARGETS.copy()
    for row, position, symbol in changes:
        assert predicted[row, position] != symbol
        predicted[row, position] = symbol
    assert both(TARGETS, predicted) == pytest.approx(
        [sequences / 4, tokens / 10]
    )


# One answer wrong, by one of its tokens.
PREDICTED = TARGETS.copy()
PREDICTED[2, 1] = 5


def test_rows_of_padding_count_for_nothing():
    rows = ((1, 2), (0, 0))
    # Whatever is predicted there: padding, too, or anything else.
    for symbol in (0, 5):
        padded = np.pad(PREDICTED, rows, constant_values=symbol)
        assert both(np.pad(TARGETS, rows), padded) == pytest.approx(
            [3 / 4, 9 / 10]
        )
    assert both(np.zeros((2, 3), "int64"), np.zeros((2, 3), "int64")) == [0, 0]


def test_weights_of_rows():
    # The wrong one counts for three answers of its four tokens.
    assert both(
        TARGETS, PREDICTED, np.array([1.0, 0.0, 3.0, 2.0])
    ) == pytest.approx([3 / 6, (3 + 9 + 2) / (3 + 12 + 2)])


def test_weights_of_tokens():
    weights = np.array(
        [[1, 0, 2, 9], [0, 0, 0, 9], [1, 0, 1, 1], [4, 9, 9, 9]], "float32"
    )
    # What is wrong has weight zero, as padding has; an answer counts for the
    # mean of its other tokens' weights.
    assert both(TARGETS, PREDICTED, weights) == [1.0, 1.0]
    weights[2, 1] = 6.0
    answers = [1.5, 9 / 4, 4.0]
    assert both(TARGETS, PREDICTED, weights) == pytest.approx(
        [(1.5 + 4) / sum(answers), (3 + 3 + 4) / (3 + 9 + 4)]
    )


def test_equals_numpy_over_batches_of_different_shapes():
    rng = np.random.default_rng(2)
    metrics = [SequenceAccuracy(pad_id=0), TokenAccuracy(pad_id=0)]
    right_rows, right_tokens = [], []
    for batch_size, length in ((5, 3), (2, 7), (40, 2)):
        lengths = rng.integers(1, length + 1, (batch_size, 1))
        is_token = np.arange(length) < lengths
        targets = np.where(
            is_token, rng.integers(1, 4, (batch_size, length)), 0
        )
        predicted = np.where(
            rng.uniform(size=targets.shape) < 0.7,
            targets,
            rng.integers(0, 4, targets.shape),
        )
        for metric in metrics:
            metric.update_state(targets, logits_of(predicted))
        is_right = targets == predicted
        right_rows += [row[mask].all() for row, mask in zip(is_right, is_token)]
        right_tokens += list(is_right[is_token])
    assert 0.2 < np.mean(right_rows) < 0.8
    assert [float(metric.result()) for metric in metrics] == pytest.approx(
        [np.mean(right_rows), np.mean(right_tokens)]
    )


@pytest.mark.parametrize(
    ("metric_class", "expected"),
    [(SequenceAccuracy, 0.5), (TokenAccuracy, 8 / 10)],
)
def test_starts_anew_after_a_reset(metric_class, expected):
    predicted = TARGETS.copy()
    predicted[[0, 2], 0] = 1
    metric = metric_class(pad_id=0)
    metric.update_state(TARGETS, logits_of(TARGETS))
    metric.reset_state()
    metric.update_state(TARGETS, logits_of(predicted))
    assert float(metric.result()) == pytest.approx(expected)


@pytest.mark.parametrize("metric_class", [SequenceAccuracy, TokenAccuracy])
def test_serialization(metric_class):
    metric = metric_class(pad_id=3, name="unusual")
    serialized = keras.saving.serialize_keras_object(metric)
    assert serialized["registered_name"] == f"tpt_keras>{metric_class.__name__}"
    revived = keras.saving.deserialize_keras_object(serialized)
    assert type(revived) is metric_class
    assert (revived.pad_id, revived.name) == (3, "unusual")
    for each in (metric, revived):
        each.update_state(TARGETS, logits_of(TARGETS[::-1]))
    assert float(revived.result()) == float(metric.result())


def test_all_right_is_exactly_when_greedy_decoding_gives_the_answer(
    trained_model,
):
    """One forward pass with the target as input tells what decoding gives."""
    questions = [f"What is the tens digit of {n}?" for n in range(100, 130)]
    tokenizer = trained_model.tokenizer
    question_ids = tokenizer.encode_questions(questions)
    answers = trained_model.solve(questions)
    rng = np.random.default_rng(3)
    # The model's answer itself, with one digit changed, cut off, gone on with.
    for index, change in enumerate(rng.integers(0, 4, len(answers))):
        if change == 1 and answers[index]:
            answers[index] = answers[index][:-1] + "x"
        elif change == 2:
            answers[index] = answers[index][:-1]
        elif change == 3:
            answers[index] += "1"
    targets = np.zeros((len(answers), 40), "int32")
    for row, answer in zip(targets, answers):
        ids = tokenizer.encode(answer)
        row[: len(ids)] = ids
    logits = trained_model(
        {
            "encoder_token_ids": question_ids,
            "decoder_token_ids": targets[:, :-1],
        }
    )
    expected = [
        given == answer
        for given, answer in zip(trained_model.solve(questions), answers)
    ]
    assert 3 <= sum(expected) <= len(expected) - 3
    for index in range(len(answers)):
        metric = SequenceAccuracy(pad_id=tokenizer.pad_id)
        metric.update_state(
            targets[index : index + 1, 1:], logits[index : index + 1]
        )
        assert float(metric.result()) == expected[index], answers[index]
