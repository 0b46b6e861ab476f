"""How every command here starts and ends."""

import contextlib
import errno
import os
import sys

from absl import app
from absl import flags
from absl import logging

from tpt_keras.errors import UsageError

_NOT_OUR_DEFECTS = (
    errno.EACCES,
    errno.EDQUOT,
    errno.EEXIST,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOSPC,
    errno.ENOTDIR,
    errno.EROFS,
)


def run(main):
    """Parses flags and runs `main`.

    What the user can mend (an unknown flag, a value that makes no sense, a
    folder that is not there) ends with one line and exit status 2.

    Args:
        main: Function without arguments.
    """

    def guarded(argv):
        try:
            if len(argv) > 1:
                raise UsageError(
                    f"Unexpected argument {argv[1]!r}: flags start with --."
                )
            _import_tensorflow_quietly()
            main()
        except UsageError as error:
            _exit(error)
        except OSError as error:
            if error.errno not in _NOT_OUR_DEFECTS:
                raise
            _exit(f"{error}. Make room there, or choose another folder.")

    app.run(guarded, flags_parser=_parse_flags)


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


def _parse_flags(argv):
    try:
        return flags.FLAGS(argv)
    except flags.Error as error:
        _exit(error)


def _exit(error):
    print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
    sys.exit(2)
