import keras
from keras import ops

from tpt_keras.errors import UsageError


def copy_model(model, dtype):
    """Makes a new model with the same weights, not compiled.

    Args:
        model: A `SequenceToSequence` or a `TransformerXL`.
        dtype: The dtype, or dtype policy, of the copy.

    Returns:
        A model of the same class.

    Raises:
        UsageError: If the model is quantized, or has LoRA enabled.

    Example:

    >>> model = Transformer.from_preset("tp_transformer_tiny")
    >>> copy_model(model, "bfloat16").compute_dtype
    'bfloat16'
    """
    copy = type(model)(model.config, name=model.name, dtype=dtype)
    weights = lasting_weights(model)
    if len(copy.weights) != len(weights):
        raise UsageError(
            f"The dtype of a model cannot be changed to {dtype} if it is "
            "quantized or has LoRA enabled. Save and load it to merge LoRA, or "
            "quantize a model of that dtype.",
            field="dtype",
        )
    # One by one, so that only two models are in memory.
    for new, old in zip(copy.weights, weights):
        new.assign(ops.convert_to_numpy(old))
    return copy


def lasting_weights(model):
    """Returns the weights of a model without the memory of its streams.

    Args:
        model: A `SequenceToSequence` or a `TransformerXL`.

    Returns:
        List of variables.
    """
    memory = {id(v) for v in keras.tree.flatten(getattr(model, "memory", ()))}
    return [weight for weight in model.weights if id(weight) not in memory]
