"""The vocabulary of a released checkpoint, read without running anything."""

import collections
import io
import os
import pathlib
import pickle

from tpt_keras.checkpoints.inert_pickle import MAX_BYTES
from tpt_keras.checkpoints.torch_file import ZIP_START
from tpt_keras.checkpoints.torch_file import TorchFile
from tpt_keras.errors import UsageError
from tpt_keras.tokenizers.vocabulary import END
from tpt_keras.tokenizers.vocabulary import PAD
from tpt_keras.tokenizers.vocabulary import SPECIAL_SYMBOLS
from tpt_keras.tokenizers.vocabulary import START
from tpt_keras.tokenizers.vocabulary import UNKNOWN

# torchtext's special symbols in its order, and ours.
REFERENCE_SYMBOLS = {
    "<unk>": UNKNOWN,
    "<pad>": PAD,
    "<sos>": START,
    "<eos>": END,
}


def read_vocabulary(source):
    """The symbols of a released vocabulary, each at its token id.

    Args:
        source: Path of the released `vocab.pt`, which is a pickle of an old
            class of torchtext; or path of a text file with one line, the
            characters in the order of their ids behind the four special
            symbols; or a sequence of all symbols.

    Returns:
        Tuple of symbols as `TransformerConfig.vocabulary` has them.

    Raises:
        UsageError: If there is no such file, if it is something else or wants
            more than to be read, or if the symbols make no vocabulary.

    Example:

    >>> read_vocabulary(["<unk>", "<pad>", "<sos>", "<eos>", " ", "e"])
    ('<unknown>', '<pad>', '<start>', '<end>', ' ', 'e')
    """
    if isinstance(source, (str, os.PathLike)):
        symbols = _read_file(pathlib.Path(source))
    else:
        symbols = source
    symbols = tuple(
        REFERENCE_SYMBOLS.get(symbol, symbol)
        if isinstance(symbol, str)
        else symbol
        for symbol in symbols
    )
    _check_symbols(symbols)
    return symbols


def _check_symbols(symbols):
    for symbol in symbols:
        # Not even printed: a list of lists of lists can be endless.
        if not isinstance(symbol, str):
            raise UsageError(
                f"The vocabulary holds a symbol of type "
                f"{type(symbol).__name__}, which is neither a character nor "
                f"one of {', '.join(REFERENCE_SYMBOLS)}."
            )
        # A surrogate is half a character, which no file can hold.
        is_character = len(symbol) == 1 and not "\ud800" <= symbol <= "\udfff"
        if not is_character and symbol not in SPECIAL_SYMBOLS:
            raise UsageError(
                f"The vocabulary holds {symbol[:20]!r}, which is neither "
                "a character nor one of the special symbols "
                f"{', '.join(REFERENCE_SYMBOLS)}."
            )
    for symbol, count in collections.Counter(symbols).items():
        if count > 1:
            raise UsageError(f"The vocabulary holds {symbol!r} twice.")
    for symbol in (PAD, START, END):
        if symbol not in symbols:
            raise UsageError(f"The vocabulary lacks the symbol {symbol}.")


def _read_file(path):
    if not path.is_file():
        raise UsageError(f"There is no vocabulary file {str(path)!r}.")
    if path.stat().st_size > MAX_BYTES:
        raise UsageError(
            f"The file {str(path)!r} is too large to be a vocabulary."
        )
    content = path.read_bytes()
    if content.startswith((ZIP_START, pickle.PROTO)):
        return _read_torch_file(path, content)
    try:
        line = content.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        line = ""
    if not line.isprintable() or not line:
        raise UsageError(
            f"The file {str(path)!r} is no vocabulary: neither the released "
            "vocab.pt nor one line of characters."
        )
    return (*REFERENCE_SYMBOLS, *line)


def _read_torch_file(path, content):
    """The list `itos` of a pickled vocabulary."""
    try:
        file = TorchFile(io.BytesIO(content))
        attributes = getattr(file.value, "attributes", {})
        symbols = attributes.get("itos")
    except pickle.UnpicklingError:
        symbols = None
    else:
        for name in file.functions:
            raise UsageError(
                f"The vocabulary {str(path)!r} is refused: it holds more than "
                f"symbols and wants to call {ascii(name)[1:-1]}."
            )
    if not isinstance(symbols, list):
        raise UsageError(
            f"The file {str(path)!r} holds no vocabulary (a list `itos`), or "
            "it is damaged. Copy it again, or give its characters as a text "
            "file."
        )
    return symbols
