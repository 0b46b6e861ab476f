"""What is no defect, in one line."""

import errno
import os
import re

from absl import flags

from tpt_keras.errors import UsageError

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
# What was raised in Python that TensorFlow called comes as a text.
_USAGE_ERROR = re.compile(r"^(?:{{.*?}} )?UsageError: (.*)", re.MULTILINE)
# TensorFlow's names for where in a graph it was.
_PLACES = re.compile(r"{{.*?}} | \[Op:\w+\]")


def line_of(error):
    """What to say about an error that the user can do something about.

    Args:
        error: An exception.

    Returns:
        One line, or `None` for an error that is a defect.
    """
    if isinstance(error, (UsageError, flags.Error)):
        return " ".join(str(error).split())
    usage_error = _USAGE_ERROR.search(str(error))
    if usage_error:
        return usage_error[1]
    fault = _disk_fault(error)
    return fault and (
        f"{fault}. Make room or change the rights there, or name another place."
    )


def _disk_fault(error):
    """What the system said, where an error comes from that.

    TensorFlow and h5py make errors of their own of it, in its words.
    """
    if isinstance(error, OSError) and error.errno is not None:
        known = error.errno in (*_DISK_FAULTS, *_PATH_FAULTS)
        return str(error) if known else None
    for line in str(error).partition("\nTraceback")[0].splitlines():
        if any(os.strerror(number) in line for number in _DISK_FAULTS):
            return _PLACES.sub("", line).strip()
    return None
