"""How every command here starts and ends."""

import contextlib
import functools
import os
import pathlib
import re
import signal
import sys

from absl import app
from absl import flags
from absl import logging

from tpt_keras.errors import UsageError
from tpt_keras.errors import command

from ._faults import line_of
from ._interruption import Interruption

# Flagfiles that come along, to be named without their folder.
CONFIGS = pathlib.Path(__file__).parent / "configs"


def run(main, goes_on=False):
    """Parses flags and runs `main`.

    What the user can mend (an unknown flag, a value that makes no sense, a
    folder that is not there, a disk that is full) ends with one line and exit
    status 2; an interruption with one line and 128 and the signal's number.

    Args:
        main: Function without arguments.
        goes_on: Whether the command, started again, goes on where it was
            interrupted.
    """

    line = "Interrupted."
    if goes_on:
        line += " Give the same command again, and it goes on."

    def guarded(argv):
        if len(argv) > 1:
            raise UsageError(
                f"Unexpected argument {argv[1]!r}: flags start with --."
            )
        _import_tensorflow_quietly()
        interruption.unwinding(main)

    with Interruption(line) as interruption, one_line_errors():
        _write_lines()
        app.run(guarded, flags_parser=functools.partial(_parse_flags, main))


@contextlib.contextmanager
def one_line_errors():
    """Ends the process with one line for what is no defect."""
    try:
        try:
            yield
        finally:
            # Here, where an error is one that is caught.
            sys.stdout.flush()
    except BrokenPipeError:
        # Who read the output has enough of it: head, or a pager.
        _drop_output()
        sys.exit(128 + signal.SIGPIPE)
    except Exception as error:
        line = line_of(error)
        if line is None:
            raise
        _drop_output()
        print(f"error: {line}", file=sys.stderr)
        sys.exit(2)


def _write_lines():
    """Output that is no terminal gets lines, when they are printed."""
    sys.stdout.reconfigure(line_buffering=True)
    if not sys.stderr.isatty():
        # Before tqdm is imported, by us or by TensorFlow Datasets: its bars
        # are made of control characters.
        os.environ.setdefault("TQDM_DISABLE", "1")


def _drop_output():
    """Keeps Python from writing at its end what could not be written."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _import_tensorflow_quietly():
    """Imports TensorFlow without its native chatter on standard error.

    It is written past Python, says on every start that there is no GPU, and
    would bury the one line that matters.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.set_verbosity(logging.ERROR)
    sys.stderr.flush()
    with contextlib.ExitStack() as stack:
        stderr = os.dup(2)
        stack.callback(os.close, stderr)
        stack.callback(os.dup2, stderr, 2)
        null = os.open(os.devnull, os.O_WRONLY)
        stack.callback(os.close, null)
        os.dup2(null, 2)
        # A benchmark on another backend does without it.
        stack.enter_context(contextlib.suppress(ModuleNotFoundError))
        import tensorflow as tf

        tf.config.list_physical_devices()


class _HelpFlag(flags.BooleanFlag):
    """Shows a command's own docstring and flags, which absl's cannot.

    Args:
        main: The command's `main`.
    """

    def __init__(self, main):
        super().__init__(
            "help", False, "show this help", "h", allow_override=True
        )
        self._main = main

    def parse(self, argument):
        if not self._parse(argument):
            return
        name = self._main.__module__
        docstring = re.sub(
            r"python -m experiments\.([\w.]+)",
            lambda match: command(match[1]),
            sys.modules[name].__doc__,
        )
        # As absl names the module that was started.
        name = sys.argv[0] if name == "__main__" else name
        print(docstring)
        print("Flags:")
        print(flags.FLAGS.module_help(name).partition(":\n")[2])
        sys.exit()


def _parse_flags(main, argv):
    flags.DEFINE_flag(_HelpFlag(main))
    try:
        return flags.FLAGS(_with_paths_of_flagfiles(argv))
    except SystemExit:
        # Of one of the flags that show help: absl exits with 1.
        sys.exit(0)


def _with_paths_of_flagfiles(argv):
    """Puts its path for the name of a flagfile that comes along."""
    argv = list(argv)
    for index, argument in enumerate(argv):
        flag, equals, name = argument.partition("=")
        if equals and flag.lstrip("-") == "flagfile":
            argv[index] = f"{flag}={_flagfile(name)}"
        elif index and argv[index - 1].lstrip("-") == "flagfile":
            argv[index] = _flagfile(argument)
    return argv


def _flagfile(name):
    if pathlib.Path(name).expanduser().exists():
        return name
    if (CONFIGS / name).is_file():
        return str(CONFIGS / name)
    raise UsageError(
        f"There is no flagfile {name!r}. Name a file of yours, or one that "
        f"comes along: {', '.join(flagfiles())}."
    )


def flagfiles():
    """Names of the flagfiles that come along."""
    return sorted(path.name for path in CONFIGS.glob("*.cfg"))
