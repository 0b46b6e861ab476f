"""How every command here starts and ends."""

import os
import sys

# Before anything imports TensorFlow: a machine without a GPU is no error.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import app
from absl import flags

from tpt_keras.errors import UsageError


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
            main()
        except UsageError as error:
            _exit(error)

    app.run(guarded, flags_parser=_parse_flags)


def _parse_flags(argv):
    try:
        return flags.FLAGS(argv)
    except flags.Error as error:
        _exit(error)


def _exit(error):
    print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
    sys.exit(2)
