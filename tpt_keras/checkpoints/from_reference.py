from tpt_keras.checkpoints.reference_file import read_checkpoint
from tpt_keras.checkpoints.reference_vocabulary import REFERENCE_SYMBOLS
from tpt_keras.checkpoints.reference_vocabulary import read_vocabulary
from tpt_keras.checkpoints.reference_weights import ATTENTION
from tpt_keras.checkpoints.reference_weights import EMBEDDING_ROLE
from tpt_keras.checkpoints.reference_weights import EMBEDDINGS
from tpt_keras.checkpoints.reference_weights import SINUSOIDS
from tpt_keras.checkpoints.reference_weights import reference_weights
from tpt_keras.errors import UsageError
from tpt_keras.models import Transformer
from tpt_keras.models import TransformerConfig

ENCODER_LAYERS = "encoder.layers."
# Whose shapes tell the sizes, and whose name the binding.
FILTER = "encoder.layers.0.densefilter.linear1.weight"
FIRST_ATTENTION = "encoder.layers.0.MHA"
# How many names a message lists of those that are wrong.
MAX_NAMES = 5


def from_reference(path, num_heads=8, vocabulary=None):
    """The Keras model of a checkpoint of the authors' released code.

    The architecture is inferred from the weights' names and shapes.

    Args:
        path: The checkpoint, in either of PyTorch's formats. It is not
            trusted: nothing in it is run.
        num_heads: Number of attention heads, which the file does not tell.
            Defaults to the paper's `8`.
        vocabulary: The vocabulary, as `read_vocabulary` takes it. Defaults to
            the one in the file, which only `save_reference` adds; without it
            the model knows the special symbols only and cannot be asked a
            question as a string.

    Returns:
        A `Transformer`.

    Raises:
        UsageError: If the file or the vocabulary cannot be read, or if they
            do not make a model; with the names of the missing, unknown and
            misshapen weights.

    Example:

    ```python
    model = tpt_keras.checkpoints.from_reference(
        "best_eval_model.pt", vocabulary="vocab.pt"
    )
    model.solve(["What is the tens digit of 31859?"])
    ```
    """
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
            f"checkpoint {str(path)!r} has {size}. Give the vocabulary that "
            "the model was trained with."
        )
    config = config.replace(vocabulary=vocabulary, vocabulary_size=size)
    num_layers, expected = _expected_shapes(arrays, config)
    _check_weights(path, arrays, expected)
    model = Transformer(config.replace(num_layers=num_layers))
    for weight in reference_weights(model):
        weight.variable.assign(weight.from_reference(arrays[weight.name]))
    return model


def _infer_config(path, arrays, num_heads):
    """What names and shapes tell of one layer, without a vocabulary."""
    bindings = [
        binding
        for binding, attention in ATTENTION.items()
        if _query_name(attention) in arrays
    ]
    vocabulary_size, hidden_dim = _matrix(path, arrays, EMBEDDINGS)
    intermediate_dim, filter_dim = _matrix(path, arrays, FILTER)
    if not bindings:
        raise UsageError(
            f"The checkpoint {str(path)!r} is no Transformer: it lacks the "
            f"weight {FIRST_ATTENTION}.W_q.weight (TP-Transformer) or "
            f"{FIRST_ATTENTION}.w_q.weight (baseline)."
        )
    query = _matrix(path, arrays, _query_name(ATTENTION[bindings[0]]))
    # So that the file holds matrices of all the sizes of a layer, before one
    # is made.
    if {hidden_dim} != {filter_dim, *query}:
        raise UsageError(
            f"The weights of the checkpoint {str(path)!r} make no model: "
            f"{EMBEDDINGS} {(vocabulary_size, hidden_dim)}, {FILTER} "
            f"{(intermediate_dim, filter_dim)} and a query's matrix {query} "
            "have no hidden dimension in common."
        )
    return TransformerConfig(
        hidden_dim=hidden_dim,
        intermediate_dim=intermediate_dim,
        num_heads=num_heads,
        num_layers=1,
        binding=bindings[0],
        bind_embeddings=any(
            name.startswith(f"{EMBEDDING_ROLE}.") for name in arrays
        ),
        vocabulary=REFERENCE_SYMBOLS.values(),
        vocabulary_size=vocabulary_size,
    )


def _query_name(attention):
    return f"{FIRST_ATTENTION}.{attention['query_dense']}.weight"


def _matrix(path, arrays, name):
    """The shape of a matrix, or a `UsageError`."""
    if name not in arrays:
        raise UsageError(
            f"The checkpoint {str(path)!r} is no Transformer: it lacks the "
            f"weight {name}."
        )
    if arrays[name].ndim != 2:
        raise UsageError(
            f"The checkpoint {str(path)!r} has a weight {name} of the shape "
            f"{arrays[name].shape}, which is no matrix."
        )
    return arrays[name].shape


def _expected_shapes(arrays, config):
    """Names and shapes of as many layers as the arrays make, and how many.

    Nothing larger than one layer is made for it: names are cheap.
    """
    of_one_layer = {
        weight.name: weight.shape
        for weight in reference_weights(Transformer(config))
    }
    in_file, in_layer = (
        sum(name.startswith(ENCODER_LAYERS) for name in names)
        for names in (arrays, of_one_layer)
    )
    # Their number, not their indices: one name is no thousand layers.
    num_layers = max(1, round(in_file / in_layer))
    return num_layers, {
        name.replace(".layers.0.", f".layers.{index}."): shape
        for index in range(num_layers)
        for name, shape in of_one_layer.items()
    }


def _check_weights(path, arrays, expected):
    """Raises a `UsageError` if the arrays have other names or shapes."""
    misshapen = [
        f"{name} {arrays[name].shape} instead of {shape}"
        for name, shape in expected.items()
        if name in arrays and arrays[name].shape != shape
    ]
    faults = [
        f"{kind}: {_some(names)}"
        for kind, names in (
            ("missing", [name for name in expected if name not in arrays]),
            (
                "unknown",
                [n for n in arrays if n not in expected and n != SINUSOIDS],
            ),
            ("misshapen", misshapen),
        )
        if names
    ]
    if faults:
        raise UsageError(
            f"The weights of the checkpoint {str(path)!r} make no model. "
            f"{'; '.join(faults)}."
        )


def _some(names):
    """The first names, and how many more there are."""
    text = ", ".join(names[:MAX_NAMES])
    more = len(names) - MAX_NAMES
    return f"{text} and {more} more" if more > 0 else text
