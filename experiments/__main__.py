"""Lists the commands, or runs one of them.

    tpt_keras
    tpt_keras train --flagfile=demo.cfg

In a clone, `make setup` installs it as .venv/bin/tpt_keras.
"""

import ast
import importlib
import pathlib
import signal
import sys
import textwrap

from tpt_keras import __version__
from tpt_keras.errors import check_choice

from . import _cli

_FOLDER = pathlib.Path(__file__).parent


def main():
    _, *arguments = sys.argv
    with _cli.one_line_errors():
        if not arguments or arguments[0] in ("-h", "--help"):
            print(_list())
            return
        if arguments[0] == "--version":
            print(f"tpt_keras {__version__}")
            return
        check_choice("command", arguments[0], _commands())
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # It kills during the imports and at Python's exit, without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    name, *arguments = arguments
    _cli.run(importlib.import_module(f"{__package__}.{name}"), arguments)


def _commands():
    """Returns a dict of every command's name to its file."""
    paths = [
        path for path in _FOLDER.rglob("*.py") if not path.name.startswith("_")
    ]
    paths.sort(key=lambda path: (len(path.parts), path))
    return {
        ".".join(path.relative_to(_FOLDER).with_suffix("").parts): path
        for path in paths
    }


def _list():
    commands = _commands()
    width = max(map(len, commands))
    lines = []
    for name, path in commands.items():
        # Read, not imported: they define the same flags.
        does = ast.get_docstring(ast.parse(path.read_text())).splitlines()[0]
        lines.append(f"  {name:{width}}  {does}")
    flagfiles = textwrap.indent(
        textwrap.fill(" ".join(_cli.flagfiles()), 78), "  "
    )
    return (
        "Commands (tpt_keras NAME --help tells more):\n\n"
        + "\n".join(lines)
        + f"\n\nFlagfiles that come along:\n{flagfiles}"
    )


if __name__ == "__main__":
    main()
