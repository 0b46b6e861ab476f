"""The vocabulary of a released checkpoint, read without running anything."""

import io
import os
import pathlib
import pickle
import zipfile
from collections import Counter
from collections import OrderedDict
from collections import defaultdict

from tpt_keras.data_generators.vocabulary import END
from tpt_keras.data_generators.vocabulary import PAD
from tpt_keras.data_generators.vocabulary import SPECIAL_SYMBOLS
from tpt_keras.data_generators.vocabulary import START
from tpt_keras.data_generators.vocabulary import UNKNOWN
from tpt_keras.errors import UsageError

# torchtext's special symbols in its order, and ours.
REFERENCE_SYMBOLS = {
    "<unk>": UNKNOWN,
    "<pad>": PAD,
    "<sos>": START,
    "<eos>": END,
}
# The released file has a few thousand bytes.
MAX_BYTES = 2**20


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
        is_character = isinstance(symbol, str) and len(symbol) == 1
        if not is_character and symbol not in SPECIAL_SYMBOLS:
            raise UsageError(
                f"The vocabulary holds {str(symbol)[:20]!r}, which is neither "
                "a character nor one of the special symbols "
                f"{', '.join(REFERENCE_SYMBOLS)}."
            )
        if symbols.count(symbol) > 1:
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
    if zipfile.is_zipfile(io.BytesIO(content)):
        return _read_pickles(path, _zipped_pickle(path, content))
    if content[:1] == pickle.PROTO:
        return _read_pickles(path, content)
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


def _zipped_pickle(path, content):
    """The pickle in PyTorch's zip archive."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for entry in archive.infolist():
                is_pickle = entry.filename.endswith("/data.pkl")
                if is_pickle and entry.file_size <= MAX_BYTES:
                    return archive.read(entry)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError):
        pass  # damaged, encrypted or packed in another way
    return b""


def _read_pickles(path, content):
    """The list `itos` of the first pickled object that has one.

    PyTorch's old stream begins with pickles of its version.
    """
    stream = io.BytesIO(content)
    try:
        while stream.tell() < len(content):
            symbols = getattr(_InertUnpickler(stream).load(), "itos", None)
            if isinstance(symbols, list):
                return symbols
    except UsageError as error:
        raise UsageError(
            f"The vocabulary {str(path)!r} is refused: {error}"
        ) from error
    except Exception:  # a damaged pickle makes it raise nearly anything
        pass
    raise UsageError(
        f"The file {str(path)!r} holds no vocabulary (a list `itos`), or it "
        "is damaged. Copy it again, or give its characters as a text file."
    )


class _Inert:
    """Stands in for whatever class or function a pickle names.

    Unpickled instances take attributes; to call the name is refused.
    """

    def __init__(self, *args, **kwargs):
        kind = type(self)
        raise UsageError(
            f"it holds more than symbols and wants to call "
            f"{kind.__module__}.{kind.__qualname__}."
        )


class _InertUnpickler(pickle.Unpickler):
    """Unpickles without importing or calling what the pickle names.

    Only the containers that torchtext's vocabulary is made of are real.
    """

    CONTAINERS = {
        ("collections", "Counter"): Counter,
        ("collections", "OrderedDict"): OrderedDict,
        ("collections", "defaultdict"): defaultdict,
    }

    def find_class(self, module, name):
        container = self.CONTAINERS.get((module, name))
        return container or type(name, (_Inert,), {"__module__": module})
