"""What is no defect, in one line."""

import re

from absl import flags

from tpt_keras.errors import UsageError
from tpt_keras.errors import disk_fault

# What was raised in Python that TensorFlow called comes as a text.
_USAGE_ERROR = re.compile(r"^(?:{{.*?}} )?UsageError: (.*)", re.MULTILINE)


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
    fault = disk_fault(error)
    return fault and (
        f"{fault}. Make room or change the rights there, or name another place."
    )
