"""Runs the commands in `experiments`, here or in a process of their own."""

import dataclasses
import importlib
import os
import pathlib
import subprocess
import sys

from absl import flags

from experiments import _cli

ROOT = pathlib.Path(_cli.__file__).parent.parent


@dataclasses.dataclass
class Result:
    """A command's exit status and its output."""

    status: int
    stdout: str
    stderr: str


def run_here(capfd, name, *arguments):
    """Runs a command in this process, which is quicker.

    Every command defines its flags when it is imported, and several define the
    same, so that it is imported for the call and its flags go with it.

    Args:
        capfd: The fixture of that name.
        name: The command's name: `"train"`.
        *arguments: Its command line.

    Returns:
        A `Result`. An exception that the command does not catch is raised.
    """
    module_name = f"experiments.{name}"
    sys.modules.pop(module_name, None)
    module = importlib.import_module(module_name)
    argv = sys.argv
    sys.argv = [name, *map(str, arguments)]
    capfd.readouterr()
    try:
        _cli.run(module.main, getattr(module, "check", None))
        raise AssertionError("absl exits.")
    except SystemExit as exit_:
        status = exit_.code or 0
    finally:
        sys.argv = argv
        for flag in list(flags.FLAGS.get_flags_for_module(module_name)):
            delattr(flags.FLAGS, flag.name)
        flags.FLAGS.unparse_flags()
        del sys.modules[module_name]
    return Result(status, *capfd.readouterr())


def run_alone(name, *arguments):
    """Runs a command as a user does, in a process of its own.

    Args:
        name: The command's name: `"train"`.
        *arguments: Its command line.

    Returns:
        A `Result`.
    """
    return run_python("-m", f"experiments.{name}", *arguments)


def without(folder, *modules):
    """The environment of a process that can import all but some modules."""
    for module in modules:
        text = f"raise RuntimeError('{module} is imported')"
        (folder / f"{module}.py").write_text(text)
    return {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}"}


def run_python(
    *arguments, cwd=ROOT, stdin="", stdout=subprocess.PIPE, env=None
):
    """Runs Python.

    Args:
        *arguments: Python's command line.
        cwd: Folder to run it in. Defaults to that of the package.
        stdin: Text of its standard input.
        stdout: File for what it prints. Defaults to the `Result`.
        env: Environment variables. Defaults to those of this process.

    Returns:
        A `Result`.
    """
    process = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=env,
        input=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )
    return Result(process.returncode, process.stdout or "", process.stderr)


def assert_refused(result, *parts):
    """Exit status 2 and one line on standard error that has all the parts."""
    assert result.status == 2, result
    assert result.stdout == ""
    assert_error(result, *parts)


def assert_error(result, *parts):
    """One line on standard error that has all the parts."""
    assert result.stderr.startswith("error: "), result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.endswith("\n")
    assert "Traceback" not in result.stderr
    for part in parts:
        assert str(part) in result.stderr
