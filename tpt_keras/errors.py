import numbers
import sys


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
