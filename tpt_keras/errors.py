"""The errors of the package and the checks that raise them.

Messages name fields in backticks (`learning_rate`). The commands in
`experiments` show the fields that are flags of theirs as flags.
"""

import errno
import importlib.util
import numbers
import os
import re

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
# Faults of a path, as Python's own errors report them.
_PATH_FAULTS = (
    errno.EEXIST,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
)
# TensorFlow's notes about the place in a graph.
_PLACES = re.compile(r"{{.*?}} | \[Op:\w+\]")


class UsageError(ValueError):
    """A request that cannot be met, and that the user can change.

    The message is one line. It says what is wrong, where, and what to do. The
    commands in `experiments` print it and exit with status 2.

    Args:
        message: The message.
        field: Name of the field or argument at fault, or `None`.
        path: The file or folder at fault, or `None`.
        remedy: The step that helps, or `None`: a pair of its name (`"train"`)
            and a dict of its options. The commands show it as a command line.
    """

    def __init__(self, message, field=None, path=None, remedy=None):
        super().__init__(message)
        self.field = field
        self.path = None if path is None else str(path)
        self.remedy = remedy


class UnreadableFileError(UsageError):
    """A file whose content cannot be read; see `tpt_keras.files.reading`.

    Args:
        message: The message.
        path: The file.
        reason: The cause, in one line.
        remedy: See `UsageError`.
    """

    def __init__(self, message, path=None, reason=None, remedy=None):
        super().__init__(message, path=path, remedy=remedy)
        self.reason = reason


class MissingDependencyError(UsageError):
    """A package that is not installed; see `require`.

    Args:
        message: The message.
        extra: The extra of `tpt_keras` that installs it.
    """

    def __init__(self, message, extra=None):
        super().__init__(message)
        self.extra = extra


def require(module, extra):
    """Raises an error if an optional package is not installed.

    It imports nothing, so that it can be called before any work.

    Args:
        module: Name of the package as it is imported: `"torch"`.
        extra: The extra of `tpt_keras` that installs it: `"torch"`.

    Raises:
        MissingDependencyError: If the package is not installed.
    """
    try:
        is_there = importlib.util.find_spec(module) is not None
    except ValueError:  # None in sys.modules
        is_there = False
    if not is_there:
        raise MissingDependencyError(
            f"The package {module} is not installed. Install it with: "
            f"pip install 'tpt_keras[{extra}]'",
            extra=extra,
        )


def check_choice(name, value, known):
    """Raises an error if a value is not one of the known ones.

    Args:
        name: Name of the field: `"schedule"`.
        value: The value.
        known: The known values.

    Raises:
        UsageError: With `field=name`, the value and the known ones.
    """
    if value not in known:
        raise UsageError(
            f"Unknown {name} {value!r}. Known: "
            f"{', '.join(sorted(map(str, known)))}.",
            field=name,
        )


def check_choices(name, values, known):
    """Raises an error if any of several values is not a known one.

    Args:
        name: Name of the field, in the singular: `"split"`.
        values: The values.
        known: The known values.

    Raises:
        UsageError: See `check_choice`.
    """
    for value in values:
        check_choice(name, value, known)


def check_positive_integer(name, value):
    """Raises an error if a value is not a positive integer.

    Args:
        name: Name of the field: `"batch_size"`.
        value: The value.

    Raises:
        UsageError: With `field=name`, the value and its type.
    """
    is_integer = isinstance(value, numbers.Integral)
    if not is_integer or isinstance(value, bool) or value <= 0:
        raise UsageError(
            f"`{name}` must be a positive integer. Received: {value!r} (of "
            f"type {type(value).__name__}).",
            field=name,
        )


def disk_fault(error):
    """Returns the system's message if an error is of a disk or a path.

    TensorFlow and h5py raise errors of their own with the system's words.

    Args:
        error: An exception.

    Returns:
        One line: `"/a/ckpt-1; No space left on device"`. `None` for an error
        of anything else.
    """
    if isinstance(error, OSError) and error.errno is not None:
        known = error.errno in (*_DISK_FAULTS, *_PATH_FAULTS)
        return str(error) if known else None
    for line in str(error).partition("\nTraceback")[0].splitlines():
        if any(os.strerror(number) in line for number in _DISK_FAULTS):
            return _PLACES.sub("", line).strip()
    return None
