"""The errors of the package and the checks that raise them.

Messages name fields in backticks (`learning_rate`). The commands in
`experiments` show the fields that are flags of theirs as flags.
"""

import difflib
import errno
import importlib.util
import numbers
import os
import re
from collections.abc import Collection
from collections.abc import Iterable
from typing import Any

from tpt_keras.typing import StrPath

_DISK_FAULTS = (
    errno.EACCES,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
    errno.ELOOP,
    errno.ENOSPC,
    errno.EPERM,
    errno.EROFS,
)
# TensorFlow's notes about a node of a graph.
_NODES = re.compile(r"{{.*?}} | \[Op:\w+\]")


class UsageError(ValueError):
    """A request that cannot be met, and that the user can change.

    The message is one line. It says what is wrong, where, and what to do. The
    commands in `experiments` print it and exit with status 2.

    Args:
        message: The message.
        field: Name of the field or argument at fault, or `None`.
        path: The file or folder at fault, or `None`.
    """

    def __init__(
        self,
        message: str,
        field: str | None = None,
        path: StrPath | None = None,
    ) -> None:
        super().__init__(message)
        self.field = field
        self.path = None if path is None else str(path)


class UnreadableFileError(UsageError):
    """A file whose content cannot be read; see `tpt_keras.files.reading`."""


class BusyFolderError(UsageError):
    """A folder that another process works in; see `folder_lock`."""


class MissingDependencyError(UsageError):
    """A package that is not installed; see `require`."""


def require(module: str, extra: str = "") -> None:
    """Raises a `MissingDependencyError` if a package is not installed.

    It imports nothing, so that it can be called before any work. The package
    is named as it is imported; `extra` of `tpt_keras`, if any, installs it.
    """
    try:
        is_there = importlib.util.find_spec(module) is not None
    except ValueError:  # None in sys.modules
        is_there = False
    if not is_there:
        package = f"'tpt_keras[{extra}]'" if extra else module
        raise MissingDependencyError(
            f"The package {module} is not installed. Install it with: "
            f"pip install {package}"
        )


def check_choice(name: str, value: Any, known: Collection[Any]) -> None:
    """Raises a `UsageError` with `field=name` if a value is not known."""
    if value not in known:
        raise UsageError(
            f"Unknown {name} {value!r}.{did_you_mean(value, known)} Known: "
            f"{', '.join(sorted(map(str, known)))}.",
            field=name,
        )


def did_you_mean(value: Any, known: Iterable[Any]) -> str:
    """Returns a sentence with the most similar known values, or nothing."""
    close = difflib.get_close_matches(str(value), map(str, known))
    return f" Did you mean {', '.join(close)}?" if close else ""


def check_positive_integer(name: str, value: Any) -> None:
    """Raises a `UsageError` if a value is not a positive integer."""
    is_integer = isinstance(value, numbers.Integral)
    if not is_integer or isinstance(value, bool) or value <= 0:
        raise UsageError(
            f"`{name}` must be a positive integer. Received: {value!r} (of "
            f"type {type(value).__name__}).",
            field=name,
        )


def disk_fault(error: BaseException) -> str | None:
    """Returns the system's message if an error is of a disk or a path.

    TensorFlow and h5py raise errors of their own with the system's words.

    Returns:
        One line: `"/a/ckpt-1; No space left on device"`. `None` for an error
        of anything else.
    """
    if isinstance(error, OSError) and error.errno is not None:
        is_known = error.filename is not None or error.errno in _DISK_FAULTS
        return str(error) if is_known else None
    for line in str(error).partition("\nTraceback")[0].splitlines():
        if any(os.strerror(number) in line for number in _DISK_FAULTS):
            return _NODES.sub("", line).strip()
    return None
