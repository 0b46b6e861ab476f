"""The files of checkpoints: `ckpt-3.npz`, arrays by name."""

import contextlib
import pathlib
import re
import zipfile
import zlib

import numpy as np

from tpt_keras.files import PARTIAL
from tpt_keras.files import whole_file

SUFFIX = ".npz"

_NAME = re.compile(rf"(ckpt-\d+){re.escape(SUFFIX)}")
# What reading a damaged file raises, depending on where the damage is.
_DAMAGE = (
    EOFError,
    LookupError,
    NotImplementedError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)


class DamagedCheckpointError(Exception):
    """A checkpoint that cannot be read, or is of another model."""


def checkpoint_names(folder):
    """Names of all checkpoints of a training.

    Args:
        folder: Their folder, there or not.

    Returns:
        List of names like `"ckpt-3"`, the oldest first.
    """
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        return []
    matches = [_NAME.fullmatch(path.name) for path in folder.iterdir()]
    names = [match[1] for match in matches if match]
    return sorted(names, key=checkpoint_number)


def checkpoint_number(name):
    """The number that a checkpoint's name ends with."""
    return int(name.split("-")[-1])


def write_checkpoint(folder, name, arrays):
    """Writes a checkpoint, under its name only when it is whole.

    Args:
        folder: Its folder; made where it is not there.
        name: Its name, like `"ckpt-3"`.
        arrays: Dict of NumPy arrays.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(folder / f"{name}{SUFFIX}") as partial:
        np.savez(partial, **arrays)


def read_checkpoint(folder, name):
    """The arrays of a checkpoint.

    Args:
        folder: Its folder.
        name: Its name, like `"ckpt-3"`.

    Returns:
        Dict of NumPy arrays.

    Raises:
        DamagedCheckpointError: If it cannot be read.
    """
    path = pathlib.Path(folder) / f"{name}{SUFFIX}"
    try:
        # NumPy does not close what is damaged.
        with path.open("rb") as file:
            return dict(np.load(file))
    except _DAMAGE as error:
        reason = str(error).split("\n")[0] or type(error).__name__
        raise DamagedCheckpointError(reason) from error


def keep_newest(folder, name, keep):
    """Removes all checkpoints but one and those just before it.

    Args:
        folder: Their folder.
        name: Name of the newest; those after it, which were damaged, go.
        keep: Number of checkpoints to keep.
    """
    folder = pathlib.Path(folder)
    names = checkpoint_names(folder)
    end = names.index(name) + 1
    for gone in names[end:] + names[: max(0, end - keep)]:
        (folder / f"{gone}{SUFFIX}").unlink(missing_ok=True)


def remove_unfinished(folder):
    """Removes what killed processes left of writing checkpoints.

    Args:
        folder: Their folder, there or not.
    """
    with contextlib.suppress(FileNotFoundError):
        for path in pathlib.Path(folder).iterdir():
            if path.name.startswith(PARTIAL):
                path.unlink()
