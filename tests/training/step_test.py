"""The pure functions of a step: loss, metrics and the clipped gradient."""

import types

import numpy as np
import pytest

from tpt_keras.training.step import loss_and_metrics
from tpt_keras.training.step import sort_by_length
from tpt_keras.training.step import trim
from tpt_keras.training.step import weighted_batch

# 0 is padding, 2 the end symbol.
TARGETS = np.array([[3, 4, 2, 0], [3, 2, 0, 0], [5, 6, 3, 2], [2, 0, 0, 0]])


def logits_of(predicted, vocabulary_size=7):
    """Random logits with the largest at the predicted tokens."""
    rng = np.random.default_rng(1)
    noise = rng.uniform(0.0, 1.0, (*predicted.shape, vocabulary_size))
    return (noise + 2.0 * np.eye(vocabulary_size)[predicted]).astype("float32")


def metrics_of(targets, logits, sample_weight=None):
    """The metrics of a batch of which a model gives these logits."""

    class Model:
        tokenizer = types.SimpleNamespace(pad_id=0)

        def __call__(self, inputs, training):
            return logits

    batch = weighted_batch(
        ({"encoder_token_ids": targets}, targets, sample_weight), pad_id=0
    )
    _, metrics = loss_and_metrics(Model(), batch)
    return {
        name: float(value[0]) / max(float(value[1]), 1e-9)
        if isinstance(value, tuple)
        else float(value)
        for name, value in metrics.items()
    }


def accuracies(targets, predicted, sample_weight=None):
    metrics = metrics_of(targets, logits_of(predicted), sample_weight)
    return [metrics["sequence_accuracy"], metrics["token_accuracy"]]


@pytest.mark.parametrize(
    ("changes", "sequences", "tokens"),
    [
        ([], 4, 10),
        # Predictions at padding do not count.
        ([(0, 3, 5), (3, 1, 6), (1, 2, 2)], 4, 10),
        # A missing end, an early end.
        ([(1, 1, 3)], 3, 9),
        ([(0, 1, 2)], 3, 9),
        # The answer without characters: its end alone.
        ([(3, 0, 4)], 3, 9),
        # Two wrong characters in one answer, and in two.
        ([(2, 0, 3), (2, 1, 3)], 3, 8),
        ([(2, 0, 3), (0, 0, 4)], 2, 8),
    ],
)
def test_accuracies_count_answers_and_tokens(changes, sequences, tokens):
    predicted = TARGETS.copy()
    for row, position, symbol in changes:
        assert predicted[row, position] != symbol
        predicted[row, position] = symbol
    assert accuracies(TARGETS, predicted) == pytest.approx(
        [sequences / 4, tokens / 10]
    )


# One answer is wrong, by one of its tokens.
PREDICTED = TARGETS.copy()
PREDICTED[2, 1] = 5


def test_weights_of_tokens():
    weights = np.array(
        [[1, 0, 2, 9], [0, 0, 0, 9], [1, 0, 1, 1], [4, 9, 9, 9]], "float32"
    )
    # The wrong token has weight zero, like padding.
    assert accuracies(TARGETS, PREDICTED, weights) == [1.0, 1.0]
    # An answer has the mean weight of its other tokens.
    weights[2, 1] = 6.0
    answers = [1.5, 9 / 4, 4.0]
    assert accuracies(TARGETS, PREDICTED, weights) == pytest.approx(
        [(1.5 + 4) / sum(answers), (3 + 3 + 4) / (3 + 9 + 4)]
    )


def test_rows_are_sorted_by_the_tokens_of_question_and_answer():
    questions = np.array([[7, 7, 7, 7], [7, 0, 0, 0], [7, 7, 7, 0], [7] * 4])
    batch = weighted_batch(inputs_and_targets(questions, TARGETS), pad_id=0)
    inputs, targets, weights = sort_by_length(batch, pad_id=0)
    order = [1, 3, 0, 2]  # 1 + 2, 4 + 1, 4 + 3 and 3 + 4 tokens
    for name, ids in (
        ("encoder_token_ids", questions),
        ("decoder_token_ids", TARGETS),
    ):
        np.testing.assert_array_equal(inputs[name], ids[order])
    np.testing.assert_array_equal(targets, TARGETS[order])
    np.testing.assert_array_equal(weights, TARGETS[order] != 0)


def test_columns_of_padding_are_trimmed():
    questions = np.array([[7, 0, 7, 0, 0], [7, 7, 0, 0, 0]])
    batch = weighted_batch(inputs_and_targets(questions, TARGETS[1:3]), 0)
    inputs, targets, weights = trim(batch, pad_id=0)
    np.testing.assert_array_equal(inputs["encoder_token_ids"], questions[:, :3])
    assert inputs["decoder_token_ids"].shape == targets.shape == (2, 4)
    empty = weighted_batch(inputs_and_targets(0 * questions, TARGETS[:0]), 0)
    inputs, targets, weights = trim(empty, pad_id=0)
    assert inputs["encoder_token_ids"].shape == (2, 1)
    assert targets.shape == weights.shape == (0, 1)


@pytest.mark.parametrize("function", [sort_by_length, trim])
def test_batch_without_padding_stays_as_it_is(function):
    # Of any model, whatever its inputs are.
    batch = weighted_batch((TARGETS, TARGETS), pad_id=None)
    assert function(batch, pad_id=None) is batch


def inputs_and_targets(questions, targets):
    ids = {"encoder_token_ids": questions, "decoder_token_ids": targets}
    return ids, targets
