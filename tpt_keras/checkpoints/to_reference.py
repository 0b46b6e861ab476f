import numpy as np
from keras import ops

from tpt_keras.checkpoints.reference_file import write_checkpoint
from tpt_keras.checkpoints.reference_weights import ATTENTION
from tpt_keras.checkpoints.reference_weights import MAX_POSITIONS
from tpt_keras.checkpoints.reference_weights import SINUSOIDS
from tpt_keras.checkpoints.reference_weights import reference_weights
from tpt_keras.errors import UsageError
from tpt_keras.layers import position_sinusoids
from tpt_keras.models import Transformer

# The one value that the released code has of these fields.
FIXED = {
    "attention": "dot_product",
    "positions": "sinusoidal",
    # `torch.nn.LayerNorm`'s own, which it does not change.
    "layer_norm_epsilon": 1e-5,
}


def to_reference(model):
    """A model's weights as the authors' released code names and lays them out.

    Args:
        model: A `Transformer`.

    Returns:
        Dict of name to float32 array: the state of the released model, its
        buffer of sinusoids included.

    Raises:
        UsageError: If the released code cannot compute this model.

    Example:

    >>> model = Transformer.from_preset("tp_transformer_tiny", num_layers=1)
    >>> state = to_reference(model)
    >>> state["encoder.layers.0.MHA.W_r.weight"].shape
    (128, 128)
    """
    if not isinstance(model, Transformer):
        raise UsageError(
            f"The released code computes no {type(model).__name__}, but "
            "Transformers alone."
        )
    config = model.config
    for name, known in FIXED.items():
        if getattr(config, name) != known:
            raise UsageError(
                f"The released code computes {name} {known!r} alone. This "
                f"model has {getattr(config, name)!r}."
            )
    if config.binding not in ATTENTION:
        raise UsageError(
            f"The released code has no binding {config.binding!r}. Known "
            f"bindings: {', '.join(ATTENTION)}."
        )
    weights = reference_weights(model)
    if len(weights) != len(model.weights):
        known = {id(weight.variable) for weight in weights}
        rest = [w.path for w in model.weights if id(w) not in known]
        raise UsageError(
            f"The released code has no weights for {', '.join(rest)}."
        )
    sinusoids = position_sinusoids(ops.arange(MAX_POSITIONS), config.hidden_dim)
    state = {SINUSOIDS: _array(sinusoids)[np.newaxis]}
    for weight in weights:
        state[weight.name] = weight.to_reference(_array(weight.variable))
    return state


def save_reference(model, path):
    """Writes a model as a checkpoint that the authors' released code loads.

    The vocabulary is kept in the file as well, for `from_reference`; the
    released code, which reads its own, must be given it.

    Args:
        model: A `Transformer`.
        path: The file to write.

    Raises:
        UsageError: If the released code cannot compute this model, if PyTorch
            is missing or if the file cannot be written.

    Example:

    ```python
    tpt_keras.checkpoints.save_reference(model, "best_eval_model.pt")
    ```
    """
    write_checkpoint(path, to_reference(model), model.config.vocabulary)


def _array(tensor):
    return np.asarray(ops.convert_to_numpy(tensor), dtype="float32")
