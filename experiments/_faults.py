"""One-line messages for errors that are no defects."""

import re
import sys

from absl import flags

from tpt_keras.errors import MissingDependencyError
from tpt_keras.errors import UnreadableFileError
from tpt_keras.errors import UsageError
from tpt_keras.errors import disk_fault

# TensorFlow passes on an error of Python that it called as a text.
_NAMES = "|".join(
    each.__name__
    for each in (UsageError, UnreadableFileError, MissingDependencyError)
)
_USAGE_ERROR = re.compile(rf"^(?:{{{{.*?}}}} )?(?:{_NAMES}): (.*)", re.M)


def line_of(error):
    """Returns the message about an error that the user can mend.

    Args:
        error: An exception.

    Returns:
        One line with flags in place of fields, or `None` for a defect.
    """
    if isinstance(error, (UsageError, flags.Error)):
        line = " ".join(str(error).split())
        remedy = getattr(error, "remedy", None)
        return with_flags(f"{line} {command_line(*remedy)}" if remedy else line)
    usage_error = _USAGE_ERROR.search(str(error))
    if usage_error:
        return with_flags(usage_error[1])
    fault = disk_fault(error)
    return fault and (
        f"{fault}. Make room or change the rights there, or name another place."
    )


def command(name):
    """The command line that starts a command, for messages.

    Args:
        name: The command's name: `"train"`.

    Returns:
        `"python -m experiments.train"` if the commands were started this way,
        in a checkout; otherwise `"tpt_keras train"`.
    """
    started = getattr(sys.modules["__main__"], "__spec__", None)
    if started and started.name.startswith("experiments."):
        return f"python -m experiments.{name}"
    return f"tpt_keras {name}"


def command_line(name, options):
    """Returns the command line of a remedy: `(tpt_keras train --seed=1)`.

    Args:
        name: The command's name.
        options: Dict of its flags' values; a list is joined by commas.
    """
    parts = [command(name)]
    for flag, value in options.items():
        if not isinstance(value, str) and hasattr(value, "__iter__"):
            value = ",".join(map(str, value))
        parts.append(f"--{flag}={value}")
    return f"({' '.join(parts)})"


def with_flags(text):
    """Shows fields that are flags of this command as flags.

    Args:
        text: A message of the library: ``"`batch_size` must be positive."``

    Returns:
        The message for the command line: `"--batch_size must be positive."`
    """
    return re.sub(
        r"`(\w+)`",
        lambda field: f"--{field[1]}" if field[1] in flags.FLAGS else field[0],
        text,
    )
