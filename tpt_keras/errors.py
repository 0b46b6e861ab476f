import collections.abc
import dataclasses
import errno
import numbers
import os
import re
import sys

# The fault of a disk or of the rights to it, whoever tells of it.
_DISK_FAULTS = (
    errno.EACCES,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
    errno.ENOSPC,
    errno.EPERM,
    errno.EROFS,
)
# The fault of a path that was given, where Python tells of it.
_PATH_FAULTS = (
    errno.EEXIST,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
)
# What is taken for a value of a type; a bool counts as a number in Python.
_TAKEN = {
    bool: bool,
    int: numbers.Integral,
    float: numbers.Real,
    str: str,
    tuple: collections.abc.Iterable,
    dict: collections.abc.Mapping,
}
# TensorFlow's names for where in a graph it was.
_PLACES = re.compile(r"{{.*?}} | \[Op:\w+\]")


class UsageError(ValueError):
    """The user asked for something that cannot be done as asked.

    Its message is one line that names the culprit and the way out. The
    commands in `experiments` print it and exit with status 2; anything else
    that is raised there is a defect and keeps its traceback.
    """


def check_names(kind, names, known):
    """Raises a `UsageError` if any of `names` is not among `known`.

    Args:
        kind: What the names are, for the message: `"preset"`.
        names: The names to check.
        known: The names there are.

    Raises:
        UsageError: With the unknown name and the list of known ones.
    """
    for name in names:
        if name not in known:
            raise UsageError(
                f"Unknown {kind} {name!r}. Known {kind}s: "
                f"{', '.join(sorted(known))}."
            )


def command(name):
    """How the user starts a command, for messages.

    Args:
        name: The command's name: `"train"`.

    Returns:
        `"python -m experiments.train"` where the commands were started so, in
        a checkout, otherwise `"tpt_keras train"`, which is installed.
    """
    started = getattr(sys.modules["__main__"], "__spec__", None)
    if started and started.name.startswith("experiments."):
        return f"python -m experiments.{name}"
    return f"tpt_keras {name}"


def check_positive_integer(name, value):
    """Raises a `UsageError` if `value` is no integer above zero.

    Args:
        name: What the value is of, for the message: `"batch_size"`.
        value: The value.

    Raises:
        UsageError: With the name, the value and its type.
    """
    is_integer = isinstance(value, numbers.Integral)
    if not is_integer or isinstance(value, bool) or value <= 0:
        raise UsageError(
            f"{name} must be a positive integer. Received: {value!r} (of type "
            f"{type(value).__name__})."
        )


def set_types(config):
    """Makes the values of a configuration of its fields' types.

    Args:
        config: A dataclass that is being made.

    Raises:
        UsageError: If one is of a wrong type, with its name.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        is_misplaced_bool = isinstance(value, bool) and field.type is not bool
        if is_misplaced_bool or not isinstance(value, _TAKEN[field.type]):
            raise UsageError(
                f"{field.name} takes a value of type "
                f"{field.type.__name__}. Received: {value!r} (of type "
                f"{type(value).__name__})."
            )
        object.__setattr__(config, field.name, field.type(value))


def port_taken(port, flag):
    """The `UsageError` of a server whose port cannot be used.

    Args:
        port: The port's number.
        flag: The flag that another one is given with: `"--port"`.

    Returns:
        A `UsageError`, to be raised.
    """
    return UsageError(
        f"The port {port} cannot be used: another program may have it. Choose "
        f"another with {flag}, or 0 for any that is free."
    )


def disk_fault(error):
    """What the system said, where an error comes from a disk or a path.

    TensorFlow and h5py make errors of their own of it, in its words.

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
