"""The frame of every command: flags, one-line errors, log and interruption."""

import contextlib
import functools
import importlib
import json
import logging
import os
import pathlib
import re
import signal
import sys

from absl import app
from absl import flags
from absl import logging as absl_logging

from tpt_keras.errors import UsageError
from tpt_keras.errors import require

from ._faults import command
from ._faults import line_of
from ._faults import with_flags

# Flagfiles of the package, which can be named without their folder.
CONFIGS = pathlib.Path(__file__).parent / "configs"
BACKENDS = ("tensorflow", "jax")


def run(main, check=None, resumes=False):
    """Parses flags, checks them and runs `main`.

    A fault that the user can mend (an unknown flag, a missing folder, a full
    disk) ends the process with one line and exit status 2. Ctrl-C and SIGTERM
    end it with one line and status 130 or 143.

    Args:
        main: Function without arguments.
        check: Function without arguments that refuses impossible flags and
            missing packages. It is called before the slow imports.
        resumes: Whether the command, started again, resumes its work.
    """

    def guarded(argv):
        if len(argv) > 1:
            raise UsageError(
                f"Unexpected argument {argv[1]!r}: flags start with --."
            )
        _check_backend()
        if check:
            check()
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        absl_logging.set_verbosity(absl_logging.ERROR)
        if _backend() == "tensorflow":
            import_tensorflow()
        with interruption.raising(), _log_on_stdout():
            main()

    line = "Interrupted."
    if resumes:
        line += " Run the same command again to resume."
    with _Interruption(line) as interruption, one_line_errors():
        _write_lines()
        app.run(guarded, flags_parser=functools.partial(_parse_flags, main))


@contextlib.contextmanager
def one_line_errors():
    """Ends the process with one line for an error that is no defect."""
    try:
        try:
            yield
        finally:
            # Inside the outer block, which catches the error of a full disk.
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough: head, or a pager.
        _drop_output()
        sys.exit(128 + signal.SIGPIPE)
    except Exception as error:
        line = line_of(error)
        if line is None:
            raise
        _drop_output()
        print(f"error: {line}", file=sys.stderr)
        sys.exit(2)


class _Interruption:
    """Ends the process with one line on Ctrl-C (SIGINT) or SIGTERM.

    While `main` runs, the first signal raises a `KeyboardInterrupt`, so that
    everything cleans up, and a second one kills the process. Outside of it,
    in the imports, the process ends at once: TensorFlow does not survive an
    exception there. A step that is being computed is finished first. Ignored
    signals stay ignored.

    Args:
        line: The line.
    """

    def __init__(self, line):
        self._line = line
        self._is_raising = False
        self._number = None

    def __enter__(self):
        # A copy, because the original is closed while TensorFlow is imported.
        self._stderr = os.dup(2)
        self._handlers = {
            number: signal.signal(number, self._handle)
            for number in (signal.SIGINT, signal.SIGTERM)
            if signal.getsignal(number) != signal.SIG_IGN
        }
        return self

    def __exit__(self, *_):
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._stderr)

    @contextlib.contextmanager
    def raising(self):
        """Turns a signal into an exception, and that into the exit status."""
        self._is_raising = True
        try:
            yield
        except BaseException:
            # TensorFlow may have turned it into an exception of its own.
            if self._number is None:
                raise
        finally:
            self._is_raising = False
        if self._number is not None:
            self._say()
            sys.exit(128 + self._number)

    def _handle(self, number, frame):
        if self._is_raising:
            self._number = number
            for each in self._handlers:
                signal.signal(each, signal.SIG_DFL)
            raise KeyboardInterrupt
        self._say()
        os._exit(128 + number)

    def _say(self):
        """Prints the line and silences everything after it."""
        # On a terminal, erases what is left of a progress bar.
        start = "\n\x1b[J" if sys.stderr.isatty() else ""
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os.write(self._stderr, f"{start}{self._line}\n".encode())
        null = os.open(os.devnull, os.O_WRONLY)
        for descriptor in (1, 2):
            os.dup2(null, descriptor)


def _write_lines():
    """Makes output that is no terminal consist of lines."""
    sys.stdout.reconfigure(line_buffering=True)
    if not sys.stderr.isatty():
        # Read when tqdm is imported. Its bars are control characters.
        os.environ.setdefault("TQDM_DISABLE", "1")


class _LinesOnStdout(logging.Handler):
    """Prints log messages as they are, above any progress bars."""

    def emit(self, record):
        line = with_flags(record.getMessage())
        tqdm = sys.modules.get("tqdm")
        if tqdm:
            tqdm.tqdm.write(line)
        else:
            print(line)


@contextlib.contextmanager
def _log_on_stdout():
    logger = logging.getLogger("tpt_keras")
    handler = _LinesOnStdout()
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


def _drop_output():
    """Keeps Python from an error at its exit about unwritten output."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _backend():
    """The name of Keras's backend, without importing Keras."""
    if "KERAS_BACKEND" in os.environ:
        return os.environ["KERAS_BACKEND"]
    home = os.environ.get("KERAS_HOME", pathlib.Path.home() / ".keras")
    try:
        config = json.loads(pathlib.Path(home, "keras.json").read_text())
        return config.get("backend", "tensorflow")
    except (OSError, ValueError, AttributeError):
        return "tensorflow"


def _check_backend():
    if _backend() not in BACKENDS:
        raise UsageError(
            f"Unknown KERAS_BACKEND: {_backend()!r}. The commands run on "
            f"{' and '.join(BACKENDS)}."
        )
    if _backend() == "jax":
        require("jax", "jax")


def import_tensorflow():
    """Imports TensorFlow without its native messages.

    They bypass Python, report on every start that there is no GPU, and would
    bury the one line that matters.

    Raises:
        UsageError: If TensorFlow cannot be imported.
    """
    try:
        with _closed_stderr():
            tensorflow = importlib.import_module("tensorflow")
            tensorflow.config.list_physical_devices()
    except Exception as error:
        reason = str(error).strip() or type(error).__name__
        raise UsageError(
            f"TensorFlow cannot be imported ({reason.splitlines()[0]}). "
            "Install it again, or set KERAS_BACKEND=jax."
        ) from error


@contextlib.contextmanager
def _closed_stderr():
    sys.stderr.flush()
    with contextlib.ExitStack() as stack:
        stderr = os.dup(2)
        stack.callback(os.close, stderr)
        stack.callback(os.dup2, stderr, 2)
        null = os.open(os.devnull, os.O_WRONLY)
        stack.callback(os.close, null)
        os.dup2(null, 2)
        yield


class _HelpFlag(flags.BooleanFlag):
    """Shows a command's docstring and its flags.

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
        # absl's name of the module that was started.
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
        # absl exits with 1 after it has shown help.
        sys.exit(0)


def _with_paths_of_flagfiles(argv):
    """Replaces the names of the package's flagfiles by their paths."""
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
        f"There is no flagfile {name!r}. Name a file of yours, or one of the "
        f"package: {', '.join(flagfiles())}."
    )


def flagfiles():
    """Names of the package's flagfiles."""
    return sorted(path.name for path in CONFIGS.glob("*.cfg"))


def needed(*names):
    """Raises an error if a flag that a command cannot do without is missing.

    Args:
        *names: Names of the flags.

    Raises:
        UsageError: With `field`, the first missing one.
    """
    for name in names:
        if not flags.FLAGS[name].value:
            raise UsageError(f"`{name}` is needed.", field=name)
