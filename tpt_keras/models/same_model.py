import keras
from keras import ops

from tpt_keras.errors import UsageError


def same_model(model, dtype):
    """Builds a model again, with the same weights, and not compiled.

    Args:
        model: A `SequenceToSequence` or a `TransformerXL`.
        dtype: The dtype, or its policy, of the new one.

    Returns:
        A model of the same class.

    Raises:
        UsageError: If the model was quantized, or LoRA is enabled in it: a new
            one does not have the same weights.

    Example:

    >>> model = Transformer.from_preset("tp_transformer_tiny")
    >>> same_model(model, "bfloat16").compute_dtype
    'bfloat16'
    """
    other = type(model)(model.config, name=model.name, dtype=dtype)
    weights = lasting_weights(model)
    if len(other.weights) != len(weights):
        raise UsageError(
            "The precision of a model that was quantized, or that LoRA is "
            f"enabled in, cannot be changed to {dtype}. Load it anew, for "
            "saving merges LoRA, or quantize a model of that precision."
        )
    # One by one: in memory are the two models, and no third.
    for new, old in zip(other.weights, weights):
        new.assign(ops.convert_to_numpy(old))
    return other


def lasting_weights(model):
    """The weights of a model, without what it remembers of its streams.

    Args:
        model: A `SequenceToSequence` or a `TransformerXL`.

    Returns:
        List of variables.
    """
    memory = {id(v) for v in keras.tree.flatten(getattr(model, "memory", ()))}
    return [weight for weight in model.weights if id(weight) not in memory]
