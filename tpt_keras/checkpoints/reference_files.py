"""Checkpoint files in the released format, and their vocabularies."""

import collections
import os
import pathlib

import numpy as np

from tpt_keras.checkpoints.reference_weights import SINUSOIDS
from tpt_keras.errors import UsageError
from tpt_keras.errors import require
from tpt_keras.files import reading
from tpt_keras.files import whole_file
from tpt_keras.tokenizers.character_tokenizer import END
from tpt_keras.tokenizers.character_tokenizer import PAD
from tpt_keras.tokenizers.character_tokenizer import SPECIAL_SYMBOLS
from tpt_keras.tokenizers.character_tokenizer import START
from tpt_keras.tokenizers.character_tokenizer import UNKNOWN

# torchtext's special symbols in its order, and ours.
REFERENCE_SYMBOLS = {
    "<unk>": UNKNOWN,
    "<pad>": PAD,
    "<sos>": START,
    "<eos>": END,
}
# The released models were wrapped in `torch.nn.DataParallel`.
_PREFIX = "module."


def read_checkpoint(path):
    """Reads a checkpoint in the released format.

    PyTorch's zip format and its older stream format, which the released files
    have, are both read. No code of the file is run.

    Args:
        path: The file.

    Returns:
        Dict of names, without `"module."`, to float32 arrays; and the list of
        the vocabulary's symbols if `write_checkpoint` wrote the file,
        otherwise `None`.

    Raises:
        MissingDependencyError: If PyTorch is not installed.
        UsageError: If there is no such file, or weights are not finite.
        UnreadableFileError: If the file is damaged or not a checkpoint.
    """
    require("torch", "torch")
    import torch

    path = pathlib.Path(path)
    if not path.is_file():
        raise UsageError(
            f"There is no checkpoint file {str(path)!r}.", path=path
        )
    with reading(path, "Download or copy it again."):
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        weights = {
            name.removeprefix(_PREFIX): _to_numpy(name, tensor)
            for name, tensor in checkpoint["model"].items()
        }
    for name, values in weights.items():
        if not np.isfinite(values).all():
            raise UsageError(
                f"The weight {name} of the checkpoint {str(path)!r} has values "
                "that are NaN or infinite. Use an earlier checkpoint.",
                path=path,
            )
    symbols = checkpoint.get("vocabulary")
    return weights, symbols if isinstance(symbols, list) else None


def _to_numpy(name, tensor):
    """A float32 array of a tensor that is as large as its storage."""
    if not tensor.is_floating_point():
        raise ValueError(f"{name} is a tensor of {tensor.dtype}")
    if tensor.nbytes > tensor.untyped_storage().nbytes():
        raise ValueError(f"{name} is larger than its storage")
    return tensor.detach().float().numpy()


def write_checkpoint(path, weights, vocabulary):
    """Writes a checkpoint in the released format.

    The file has all the keys that the released code reads, in PyTorch's stream
    format. For that code it is a model before its first training step.

    Args:
        path: The file.
        weights: Dict of names, without `"module."`, to float32 arrays.
        vocabulary: List of symbols in the order of their token ids, which
            `read_checkpoint` reads and the released code ignores.

    Raises:
        MissingDependencyError: If PyTorch is not installed.
        UsageError: If the file cannot be written.
    """
    require("torch", "torch")
    import torch

    checkpoint = {
        "global_step": 0,
        "model": {
            _PREFIX + name: torch.from_numpy(array.copy())
            for name, array in weights.items()
        },
        "optimizer": {
            "state": {},
            "param_groups": [_adam_group(weights)],
        },
        "best_eval_loss": float("inf"),
        "best_eval_acc": 0.0,
        "best_step": 0,
        "vocabulary": list(vocabulary),
    }
    try:
        with whole_file(path) as partial, partial.open("wb") as file:
            torch.save(checkpoint, file, _use_new_zipfile_serialization=False)
    # PyTorch raises a RuntimeError if the disk is full.
    except (OSError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(
            f"The checkpoint {str(path)!r} cannot be written: {reason}.",
            path=path,
        ) from error


def _adam_group(weights):
    """The state of the paper's optimizer for one group of parameters."""
    num_parameters = len(weights.keys() - {SINUSOIDS})
    return {
        "lr": 1e-4,
        "betas": (0.9, 0.995),
        "eps": 1e-8,
        "weight_decay": 0,
        "amsgrad": False,
        "params": list(range(num_parameters)),
    }


def read_vocabulary(source):
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

    Raises:
        UsageError: If there is no such file, or the symbols make no
            vocabulary.
        UnreadableFileError: If the file has no line of characters.

    Example:

    >>> read_vocabulary(["<unk>", "<pad>", "<sos>", "<eos>", " ", "e"])
    ('<unknown>', '<pad>', '<start>', '<end>', ' ', 'e')
    """
    if isinstance(source, (str, os.PathLike)):
        source = _read_characters(pathlib.Path(source))
    symbols = tuple(
        REFERENCE_SYMBOLS.get(symbol, symbol)
        if isinstance(symbol, str)
        else symbol
        for symbol in source
    )
    _check_symbols(symbols)
    return symbols


def _read_characters(path):
    if not path.is_file():
        raise UsageError(
            f"There is no vocabulary file {str(path)!r}.", path=path
        )
    with reading(path, "Give a text file with one line of characters."):
        line = path.read_text("utf-8").rstrip("\r\n")
        if not line or not line.isprintable():
            raise ValueError("it is not one line of characters")
    return (*REFERENCE_SYMBOLS, *line)


def _check_symbols(symbols):
    for symbol in symbols:
        # Half a surrogate pair cannot be written to a file.
        is_character = (
            isinstance(symbol, str)
            and len(symbol) == 1
            and not "\ud800" <= symbol <= "\udfff"
        )
        if not is_character and symbol not in SPECIAL_SYMBOLS:
            raise UsageError(
                f"The vocabulary has the symbol {str(symbol)[:20]!r}, which is "
                "neither a character nor one of the special symbols "
                f"{', '.join(REFERENCE_SYMBOLS)}."
            )
    for symbol, count in collections.Counter(symbols).items():
        if count > 1:
            raise UsageError(f"The vocabulary has {symbol!r} twice.")
    for symbol in (PAD, START, END):
        if symbol not in symbols:
            raise UsageError(f"The vocabulary lacks the symbol {symbol}.")
