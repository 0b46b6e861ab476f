"""Conversion between released checkpoints and models."""

import re

import keras
import numpy as np
from keras import ops

from tpt_keras.checkpoints.reference_files import REFERENCE_SYMBOLS
from tpt_keras.checkpoints.reference_files import read_checkpoint
from tpt_keras.checkpoints.reference_files import read_vocabulary
from tpt_keras.checkpoints.reference_files import write_checkpoint
from tpt_keras.checkpoints.reference_weights import ATTENTION
from tpt_keras.checkpoints.reference_weights import EMBEDDING_ROLE
from tpt_keras.checkpoints.reference_weights import EMBEDDINGS
from tpt_keras.checkpoints.reference_weights import MAX_POSITIONS
from tpt_keras.checkpoints.reference_weights import SINUSOIDS
from tpt_keras.checkpoints.reference_weights import reference_weights
from tpt_keras.errors import UsageError
from tpt_keras.errors import require
from tpt_keras.layers.token_and_position_embedding import position_sinusoids
from tpt_keras.models import Transformer
from tpt_keras.models import TransformerConfig
from tpt_keras.models.weights import check_shapes

# The weights whose shapes give the sizes, and whose names the binding.
_FILTER = "encoder.layers.0.densefilter.linear1.weight"
_QUERY = "encoder.layers.0.MHA.{}.weight"
# The released code supports only these values.
_FIXED = {
    "attention": "dot_product",
    "positions": "sinusoidal",
    # The default of `torch.nn.LayerNorm`.
    "layer_norm_epsilon": 1e-5,
}


def from_reference(path, num_heads=8, vocabulary=None):
    """Loads a checkpoint of the authors' released code as a Keras model.

    The architecture is inferred from the names and shapes of the weights.

    Args:
        path: The checkpoint, in either of PyTorch's formats. No code of the
            file is run.
        num_heads: Number of attention heads, which the file does not contain.
            Defaults to the paper's `8`.
        vocabulary: The vocabulary, as `read_vocabulary` takes it. Defaults to
            the one in the file, which only `save_reference` adds. Without a
            vocabulary the model knows only the special symbols and takes
            token ids, but no questions.

    Returns:
        A `Transformer`.

    Raises:
        MissingDependencyError: If PyTorch is not installed.
        UsageError: If the file or the vocabulary cannot be read, or if they
            make no model. Names the missing, unknown and misshapen weights.

    Example:

    ```python
    model = tpt_keras.checkpoints.from_reference(
        "best_eval_model.pt", vocabulary="vocabulary.txt"
    )
    model.solve(["What is the tens digit of 31859?"])
    ```
    """
    require("torch", "torch")
    if vocabulary is not None:
        vocabulary = read_vocabulary(vocabulary)
    arrays, own_symbols = read_checkpoint(path)
    config = _infer_config(path, arrays, num_heads)
    size = config.vocabulary_size
    if vocabulary is None:
        vocabulary = read_vocabulary(own_symbols or REFERENCE_SYMBOLS)
    elif len(vocabulary) != size:
        raise UsageError(
            f"The vocabulary has {len(vocabulary)} symbols, but the "
            f"checkpoint {str(path)!r} has {size}. Give the vocabulary of the "
            "model's training.",
            field="vocabulary",
        )
    config = config.replace(vocabulary=vocabulary, vocabulary_size=size)
    _check_weights(arrays, config)
    model = Transformer(config)
    for weight in reference_weights(model):
        weight.variable.assign(weight.from_reference(arrays[weight.name]))
    return model


def to_reference(model):
    """Converts a model's weights to the names and layout of the released code.

    Args:
        model: A `Transformer`.

    Returns:
        Dict of names to float32 arrays: the state of the released model,
        including its buffer of sinusoids.

    Raises:
        UsageError: If the released code does not support the model.

    Example:

    >>> model = Transformer.from_preset("tp_transformer_tiny", num_layers=1)
    >>> state = to_reference(model)
    >>> state["encoder.layers.0.MHA.W_r.weight"].shape
    (128, 128)
    """
    if not isinstance(model, Transformer):
        raise UsageError(
            "The released code supports only Transformers, not a "
            f"{type(model).__name__}."
        )
    config = model.config
    for name, known in {**_FIXED, "binding": ATTENTION}.items():
        value = getattr(config, name)
        if value != known and value not in (known if name == "binding" else ()):
            raise UsageError(
                f"The released code does not support `{name}` {value!r}.",
                field=name,
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
    """Saves a model as a checkpoint for the authors' released code.

    The file includes the vocabulary for `from_reference`. The released code
    ignores it and reads its own.

    Args:
        model: A `Transformer`.
        path: The file to write.

    Raises:
        MissingDependencyError: If PyTorch is not installed.
        UsageError: If the released code does not support the model, or the
            file cannot be written.

    Example:

    ```python
    tpt_keras.checkpoints.save_reference(model, "best_eval_model.pt")
    ```
    """
    require("torch", "torch")
    write_checkpoint(path, to_reference(model), model.config.vocabulary)


def _infer_config(path, arrays, num_heads):
    bindings = [
        binding
        for binding, attention in ATTENTION.items()
        if _QUERY.format(attention["query_dense"]) in arrays
    ]
    shapes = [arrays[n].shape for n in (EMBEDDINGS, _FILTER) if n in arrays]
    if not bindings or [len(shape) for shape in shapes] != [2, 2]:
        raise UsageError(
            f"The checkpoint {str(path)!r} is not of a released Transformer: "
            f"it needs the matrices {EMBEDDINGS}, {_FILTER} and "
            f"{_QUERY.format('W_q')} (TP-Transformer) or "
            f"{_QUERY.format('w_q')} (baseline).",
            path=path,
        )
    (vocabulary_size, hidden_dim), (intermediate_dim, _) = shapes
    layers = {re.match(r"encoder\.layers\.\d+\.|", name)[0] for name in arrays}
    return TransformerConfig(
        hidden_dim=hidden_dim,
        intermediate_dim=intermediate_dim,
        num_heads=num_heads,
        num_layers=len(layers - {""}),
        binding=bindings[0],
        bind_embeddings=any(
            name.startswith(f"{EMBEDDING_ROLE}.") for name in arrays
        ),
        vocabulary=REFERENCE_SYMBOLS.values(),
        vocabulary_size=vocabulary_size,
    )


def _check_weights(arrays, config):
    """Checks names and shapes before any memory is allocated for weights."""
    with keras.StatelessScope(initialize_variables=False):
        weights = reference_weights(Transformer(config))
    check_shapes(
        {name: a.shape for name, a in arrays.items() if name != SINUSOIDS},
        {weight.name: weight.shape for weight in weights},
    )


def _array(tensor):
    return np.asarray(ops.convert_to_numpy(tensor), dtype="float32")
