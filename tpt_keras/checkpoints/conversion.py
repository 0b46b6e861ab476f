"""Released checkpoint files, and their conversion to models.

The released code names a weight `<module>.weight` or `<module>.bias`. Its
linear maps hold `(fan_out, fan_in)`, ours `(fan_in, fan_out)` with an axis for
the heads; everything else is laid out alike.
"""

import math
import os
import pathlib
import pickle
import re
from collections.abc import Sequence

import numpy as np

from tpt_keras.errors import UsageError
from tpt_keras.errors import require
from tpt_keras.files import reading
from tpt_keras.models import Transformer
from tpt_keras.models import TransformerConfig
from tpt_keras.models.weights import check_shapes
from tpt_keras.tokenizers.character_tokenizer import END
from tpt_keras.tokenizers.character_tokenizer import PAD
from tpt_keras.tokenizers.character_tokenizer import START
from tpt_keras.tokenizers.character_tokenizer import UNKNOWN
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer
from tpt_keras.typing import StrPath

# torchtext's special symbols in its order, and ours.
REFERENCE_SYMBOLS = {
    "<unk>": UNKNOWN,
    "<pad>": PAD,
    "<sos>": START,
    "<eos>": END,
}
# The released models were wrapped in `torch.nn.DataParallel`.
_PREFIX = "module."
# The released names of the parts of our weights' paths.
EMBEDDING = {"embeddings": "tok_embedding.weight", "role": "linear"}
FEED_FORWARD = {
    "feed_forward": "densefilter",
    "intermediate": "linear1",
    "output": "linear2",
}
CELLS = {
    "encoder": {
        **FEED_FORWARD,
        "self_attention_norm": "layernorm1",
        "self_attention": "MHA",
        "feed_forward_norm": "layernorm2",
        "output_norm": "layernorm3",
    },
    "decoder": {
        **FEED_FORWARD,
        "self_attention_norm": "layernorm1",
        "self_attention": "selfAttn",
        "cross_attention_norm": "layernorm2",
        "cross_attention": "encAttn",
        "feed_forward_norm": "layernorm3",
        "output_norm": "layernorm4",
    },
}
# The released TP-Transformer and baseline name the maps differently.
MAPS = {
    "hadamard": {
        "query": "W_q",
        "key": "W_k",
        "value": "W_v",
        "role": "W_r",
        "attention_output": "W_o",
    },
    "none": {
        "query": "w_q",
        "key": "w_k",
        "value": "w_v",
        "attention_output": "linear",
    },
}
WEIGHTS = {
    "kernel": "weight",
    "gamma": "weight",
    "bias": "bias",
    "beta": "bias",
}
# A buffer of the released embedding, which is computed here.
SINUSOIDS = "embedding.pe"
# Their shapes give the sizes, and their names the binding.
_EMBEDDINGS = "embedding.tok_embedding.weight"
_FILTER = "encoder.layers.0.densefilter.linear1.weight"
_QUERY = "encoder.layers.0.MHA.{}.weight"


def from_reference(
    path: StrPath,
    num_heads: int = 8,
    vocabulary: StrPath | Sequence[str] | None = None,
) -> Transformer:
    """Loads a checkpoint of the authors' released code as a Keras model.

    The architecture is inferred from the names and shapes of the weights.

    Args:
        path: The checkpoint. No code of the file is run.
        num_heads: Number of attention heads, which the file does not contain.
            Defaults to the paper's `8`.
        vocabulary: The vocabulary, as `read_vocabulary` takes it. Without one
            the model knows only the special symbols and takes token ids, but
            no questions.

    Returns:
        A `Transformer`.

    Raises:
        UsageError: If PyTorch is not installed, the file or the vocabulary
            cannot be read, or they make no model.

    Example:

    ```python
    model = tpt_keras.checkpoints.from_reference(
        "best_eval_model.pt", vocabulary="vocabulary.txt"
    )
    model.solve(["What is the tens digit of 31859?"])
    ```
    """
    require("torch", "torch")
    arrays = read_checkpoint(path)
    config = _infer_config(path, arrays, num_heads)
    if vocabulary:
        symbols, size = read_vocabulary(vocabulary), config.vocabulary_size
        if len(symbols) != size:
            raise UsageError(
                f"The vocabulary has {len(symbols)} symbols, but the "
                f"checkpoint {str(path)!r} has {size}. Give the vocabulary of "
                "the model's training.",
                field="vocabulary",
            )
        config = config.replace(vocabulary=symbols)
    model = Transformer(config)
    names = _reference_names(model)
    check_shapes(
        {name: a.shape for name, a in arrays.items() if name != SINUSOIDS},
        {name: _reference_shape(weight) for name, weight in names.items()},
    )
    for name, weight in names.items():
        array = arrays[name].T if weight.name == "kernel" else arrays[name]
        weight.assign(np.reshape(array, weight.shape))
    return model


def _infer_config(path, arrays, num_heads):
    bindings = [
        binding
        for binding, maps in MAPS.items()
        if _QUERY.format(maps["query"]) in arrays
    ]
    shapes = [arrays[n].shape for n in (_EMBEDDINGS, _FILTER) if n in arrays]
    if not bindings or [len(shape) for shape in shapes] != [2, 2]:
        raise UsageError(
            f"The checkpoint {str(path)!r} is not of a released Transformer: "
            f"it needs the matrices {_EMBEDDINGS}, {_FILTER} and "
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
        bind_embeddings="embedding.linear.weight" in arrays,
        vocabulary=REFERENCE_SYMBOLS.values(),
        vocabulary_size=vocabulary_size,
    )


def _reference_names(model):
    """Returns a dict of the released names to the model's weights."""
    names = {}
    for weight in model.weights:
        _, owner, *parts = weight.path.split("/")
        stack, _, index = owner.partition("_cell_")
        if stack == "embedding":
            table = EMBEDDING
        else:
            table = {**CELLS[stack], **MAPS[model.config.binding]}
            owner = f"{stack}.layers.{index}"
        released = [{**table, **WEIGHTS}[part] for part in parts]
        names[".".join([owner, *released])] = weight
    return names


def _reference_shape(weight):
    if weight.name == "embeddings":
        return tuple(weight.shape)
    # A `Projection` gives its kernel the shape of its matrix.
    return getattr(weight, "matrix_shape", (math.prod(weight.shape),))[::-1]


def read_checkpoint(path: StrPath) -> dict[str, np.ndarray]:
    """Reads a checkpoint in either of PyTorch's formats.

    No code of the file is run. Returns a dict of names, without `"module."`, to
    float32 arrays.
    """
    import torch

    path = pathlib.Path(path)
    if not path.is_file():
        raise UsageError(
            f"There is no checkpoint file {str(path)!r}.", path=path
        )
    with reading(path, "Download or copy it again."):
        try:
            checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            # PyTorch advises to run the code in the file.
            raise ValueError("it is damaged, or holds code") from error
        return {
            name.removeprefix(_PREFIX): tensor.detach().float().numpy()
            for name, tensor in checkpoint["model"].items()
        }


def read_vocabulary(source: StrPath | Sequence[str]) -> tuple[str, ...]:
    """Reads the vocabulary of a released checkpoint.

    The released `vocab.pt` is an object of an old version of torchtext. With
    that version installed, this writes the text file:

    ```python
    symbols = torch.load("vocab.pt", weights_only=False).itos
    pathlib.Path("vocabulary.txt").write_text("".join(symbols[4:]))
    ```

    Args:
        source: Path of a text file with one line: the characters in the order
            of their token ids, without the four special symbols. Or a
            sequence of all symbols.

    Returns:
        Tuple of symbols, as `TransformerConfig.vocabulary`.

    Example:

    >>> read_vocabulary(["<unk>", "<pad>", "<sos>", "<eos>", " ", "e"])
    ('<unknown>', '<pad>', '<start>', '<end>', ' ', 'e')
    """
    if isinstance(source, (str, os.PathLike)):
        with reading(source, "Give a text file with one line of characters."):
            line = pathlib.Path(source).read_text("utf-8").rstrip("\r\n")
            if not line.isprintable():
                raise ValueError("it is not one line of characters")
        source = (*REFERENCE_SYMBOLS, *line)
    symbols = [REFERENCE_SYMBOLS.get(symbol, symbol) for symbol in source]
    return CharacterTokenizer(symbols).vocabulary
