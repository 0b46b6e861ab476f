"""Pure functions of a training step: loss, metrics and clipping.

The step itself is in `backends`, whole in one file for each backend.
"""

import keras
from keras import ops

from tpt_keras.models.metrics import is_predicted
from tpt_keras.models.metrics import right_answers
from tpt_keras.models.metrics import token_weights

# The metrics of `loss_and_metrics`: means, and counts of a training.
METRICS = ("loss", "sequence_accuracy", "token_accuracy")
COUNTS = ("examples", "tokens")


def loss_and_metrics(model, batch, training=False):
    """Computes the loss and the metrics of a batch of answers.

    It returns sums instead of means, so that the parts of a batch, on several
    replicas or in micro-batches, add up to the batch.

    Args:
        model: A `SequenceToSequence`.
        batch: Inputs, targets `(batch, length)` and the targets' weights; see
            `weighted_batch`.
        training: Applies dropout.

    Returns:
        The sum of the weighted losses of the target tokens in nats, a scalar;
        and a dict of metrics. A mean is a pair, the weighted sum and the sum
        of the weights, a count is a scalar.
    """
    inputs, targets, weights = batch
    logits = model(inputs, training=training)
    loss, metrics = token_metrics(logits, targets, weights)
    is_right, answer_weights = right_answers(logits, targets, weights)
    pad_id = model.tokenizer.pad_id
    is_answer = ops.any(ops.not_equal(targets, pad_id), axis=-1)
    return loss, {
        **metrics,
        "sequence_accuracy": _weighted(is_right, answer_weights),
        "examples": ops.sum(ops.cast(is_answer, "float32")),
        "tokens": sum(
            ops.sum(ops.cast(ops.not_equal(ids, pad_id), "float32"))
            for ids in (inputs["encoder_token_ids"], targets)
        ),
    }


def token_metrics(logits, targets, weights):
    """The loss and the token accuracy, as `loss_and_metrics` returns them."""
    losses = keras.losses.sparse_categorical_crossentropy(
        targets, ops.cast(logits, "float32"), from_logits=True
    )
    loss = ops.sum(losses * weights)
    return loss, {
        "loss": (loss, ops.sum(weights)),
        "token_accuracy": _weighted(is_predicted(logits, targets), weights),
    }


def weighted_batch(data, pad_id):
    """Returns a batch with a weight for each target token.

    Args:
        data: Inputs, targets `(batch, length)` and optionally sample weights,
            `(batch,)` or `(batch, length)`, as `fit` takes them.
        pad_id: Token id of padding, which gets the weight 0. `None`: there is
            no padding.

    Returns:
        Inputs, targets and float weights `(batch, length)`.
    """
    inputs, targets, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    is_token = ops.ones_like(targets)
    if pad_id is not None:
        is_token = ops.not_equal(targets, pad_id)
    return inputs, targets, token_weights(is_token, sample_weight)


def map_batch(function, batch, pad_id):
    """Applies a function of an array and of its padding to all of a batch."""
    inputs, targets, weights = batch
    padding = 0 if pad_id is None else pad_id
    return (
        keras.tree.map_structure(lambda ids: function(ids, padding), inputs),
        function(targets, padding),
        function(weights, 0.0),
    )


def sort_by_length(batch, pad_id):
    """Sorts the rows of a batch by length, so that micro-batches pad less."""
    if pad_id is None:
        return batch
    inputs, targets, _ = batch
    lengths = sum(
        ops.sum(ops.cast(ops.not_equal(ids, pad_id), "int32"), axis=-1)
        for ids in (inputs["encoder_token_ids"], targets)
    )
    order = ops.argsort(lengths)
    return map_batch(lambda rows, _: ops.take(rows, order, 0), batch, pad_id)


def trim(batch, pad_id):
    """Cuts the last columns of a batch that are padding in all its rows.

    XLA has no such shapes.
    """
    if pad_id is None:
        return batch
    inputs, targets, weights = batch
    source_length, target_length = (
        ops.max(
            ops.where(
                ops.any(ops.not_equal(ids, pad_id), axis=0),
                ops.arange(1, ops.shape(ids)[1] + 1),
                1,  # of a micro-batch without a problem
            )
        )
        for ids in (inputs["encoder_token_ids"], targets)
    )
    inputs = {
        "encoder_token_ids": inputs["encoder_token_ids"][:, :source_length],
        "decoder_token_ids": inputs["decoder_token_ids"][:, :target_length],
    }
    return inputs, targets[:, :target_length], weights[:, :target_length]


def global_norm(tensors):
    """Returns the norm of all elements of all tensors, in float32."""
    squares = [
        ops.sum(ops.square(ops.cast(tensor, "float32"))) for tensor in tensors
    ]
    return ops.sqrt(ops.sum(ops.stack(squares)))


def clip_by_global_norm(tensors, clip_norm, norm):
    """Scales tensors of a global norm `norm` to at most `clip_norm`, if any."""
    if clip_norm is None:
        return tensors
    scale = ops.minimum(1.0, clip_norm / norm)
    return [tensor * ops.cast(scale, tensor.dtype) for tensor in tensors]


def _weighted(values, weights):
    return ops.sum(ops.cast(values, "float32") * weights), ops.sum(weights)
