"""The frame of every command: flags, one-line errors, log and interruption."""

import atexit
import contextlib
import functools
import gc
import importlib
import logging
import math
import os
import pathlib
import re
import signal
import sys

from absl import app
from absl import flags
from absl import logging as absl_logging

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.errors import disk_fault
from tpt_keras.errors import require
from tpt_keras.files import reading
from tpt_keras.processes import interrupted

# Flagfiles of the package, which can be named without their folder.
CONFIGS = pathlib.Path(__file__).parent / "configs"


def run(command, arguments):
    """Parses flags, checks them and runs a command.

    A fault that the user can mend ends the process with one line and status 2;
    Ctrl-C and SIGTERM end `main` with one line and status 130 or 143.

    Args:
        command: Module with a function `main`. It may have a `check`, which
            refuses impossible flags and missing packages before the slow
            imports; `RESUMES = True` if the command, started again, resumes
            its work; and `NEEDS_BACKEND = False` if `main` calls
            `import_backend` where it needs Keras.
        arguments: Command line, without the command's name.
    """
    line = "Interrupted."
    if getattr(command, "RESUMES", False):
        line += " Run the same command again to resume."

    def guarded(argv):
        if len(argv) > 1:
            start = "flags start with --"
            if "question" in flags.FLAGS:
                start = "a question starts with --question="
            raise UsageError(f"Unexpected argument {argv[1]!r}: {start}.")
        backend = os.environ.setdefault("KERAS_BACKEND", "tensorflow")
        backends = "tensorflow", "jax", "torch"
        check_choice("KERAS_BACKEND", backend, backends)
        if hasattr(command, "check"):
            command.check()
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        absl_logging.set_verbosity(absl_logging.ERROR)
        if getattr(command, "NEEDS_BACKEND", True):
            import_backend()
        with _interruptible(line), _log_on_stdout():
            command.main()

    if not sys.stderr.isatty():
        # Read when tqdm is imported. Its bars are control characters.
        os.environ.setdefault("TQDM_DISABLE", "1")
    with one_line_errors():
        app.run(
            guarded,
            [command.__name__, *arguments],
            functools.partial(_parse_flags, command),
        )


@contextlib.contextmanager
def one_line_errors():
    """Ends the process with one line for an error that is no defect."""
    # A character that the terminal or the log lacks is escaped.
    sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")
    try:
        yield
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


def _drop_output():
    """Drops what Python could not write at its exit either."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def line_of(error):
    """Returns one line about an error that the user can mend, or `None`."""
    if isinstance(error, (UsageError, flags.Error)):
        text = re.sub("=None: Flag .*", " is needed", str(error))
        # Absl gives every flag at fault a line.
        text = re.sub(r"^flag (--.*?)\.?$", r"\1.", text, flags=re.MULTILINE)
        return with_flags(" ".join(text.split()))
    fault = disk_fault(error)
    advice = "Make room or change the rights there, or name another path."
    if isinstance(error, FileNotFoundError):
        advice = "Name one that is there."
    return fault and f"{fault}. {advice}"


def with_flags(text):
    """Shows the fields of a message, in backticks, as flags."""
    return re.sub(
        r"`(\w+)`",
        lambda field: f"--{field[1]}" if field[1] in flags.FLAGS else field[0],
        text,
    )


@contextlib.contextmanager
def _handling(handler):
    """Sets the handler of Ctrl-C and SIGTERM, unless they are ignored."""
    before = {
        number: signal.signal(number, handler)
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _interruptible(line):
    """Ends the process with one line on Ctrl-C or SIGTERM.

    The first signal raises a `KeyboardInterrupt`, as soon as TensorFlow returns
    to Python; one after that kills. `raise_if_interrupted` raises it again if
    something has dropped it.
    """
    received = []

    def interrupt(number, frame):
        received.append(number)
        interrupted.set()
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_DFL)
        raise KeyboardInterrupt

    # Python prints a traceback of what a destructor drops.
    before = sys.unraisablehook
    sys.unraisablehook = lambda error: received or before(error)
    try:
        with _handling(interrupt):
            yield
    except BaseException:
        # TensorFlow may have turned it into an exception of its own.
        if not received:
            raise
    finally:
        sys.unraisablehook = before
        interrupted.clear()
    if received:
        print(line, file=sys.stderr)
        sys.exit(128 + received[0])


@contextlib.contextmanager
def _log_on_stdout():
    """Prints the library's log, above any progress bars."""
    logger = logging.getLogger("tpt_keras")
    before = logger.level, logger.propagate
    handler = logging.Handler()
    handler.emit = _print_record
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


def _print_record(record):
    import tqdm

    tqdm.tqdm.write(with_flags(record.getMessage()))


def import_backend():
    """Imports Keras and its backend; refuses a missing backend."""
    backend = os.environ["KERAS_BACKEND"]
    if backend == "tensorflow":
        import_tensorflow()
    else:
        require(backend, backend)
        if backend == "torch":
            # At the very end Triton prints what `gc.freeze` keeps as leaks.
            atexit.register(os.dup2, os.open(os.devnull, os.O_WRONLY), 2)
        _import("keras")


def import_tensorflow():
    """Imports TensorFlow without its native messages, which bypass Python."""
    require("tensorflow")
    sys.stderr.flush()
    stderr = os.dup(2)
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 2)
    try:
        # It does not survive an exception in its import.
        with _handling(signal.SIG_DFL):
            _import("tensorflow").config.list_physical_devices()
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def _import(name):
    """Imports a large package, without collections of garbage.

    Going through its objects, of which none is garbage, is a quarter of the
    time of the import, and most of that of Python's exit.
    """
    if name in sys.modules:
        return sys.modules[name]
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()


def _parse_flags(command, argv):
    if {"-h", "--help"} & set(argv):
        print(f"{command.__doc__}\nFlags:")
        print(flags.FLAGS.module_help(command.__name__).partition(":\n")[2])
        sys.exit()
    name, *given = argv
    given = flags.FLAGS.read_flags_from_files(
        list(_with_flagfiles(given)), force_gnu=False
    )
    rest = flags.FLAGS([name, *map(_with_home, given)])
    for name in flags.FLAGS:
        flag = flags.FLAGS[name]
        # As of a variable of the shell that is not set.
        if flag.default is None and flag.value in ("", []):
            raise UsageError(f"--{name} is empty.", field=name)
        # It would pass every bound.
        if isinstance(flag.value, float) and not math.isfinite(flag.value):
            raise UsageError(f"--{name} must be finite.", field=name)
    return rest


def _with_flagfiles(arguments, within=()):
    """Replaces flagfiles, also those that they include, by their lines."""
    for argument in arguments:
        match = re.fullmatch("--?flagfile=(.*)", argument)
        if not match:
            yield argument
            continue
        path = _flagfile_path(match[1])
        if path in within:
            raise UsageError(
                f"The flagfile {str(path)!r} includes itself. Remove its "
                "--flagfile, or that of a file that it includes.",
                field="flagfile",
                path=path,
            )
        with reading(path, "--flagfile needs a text file.", "flagfile"):
            lines = map(str.strip, path.read_text().splitlines())
        yield from _with_flagfiles(
            (each for each in lines if not re.match("#|//|$", each)),
            (*within, path),
        )


def _flagfile_path(name):
    """Returns the path of the user's flagfile, or else of the package's."""
    path = pathlib.Path(os.path.expanduser(name))
    if path.exists():
        return path.resolve()
    check_choice("flagfile", name, flagfiles())
    return CONFIGS / name


def _with_home(argument):
    """Replaces the ~ at the start of paths; of a text it is a character."""
    if re.match("--?(question|prompt)=", argument):
        return argument
    home = os.path.expanduser
    return re.sub("(?<=[=,])~[^,]*", lambda path: home(path[0]), argument)


def flagfiles():
    return sorted(path.name for path in CONFIGS.glob("*.cfg"))
