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

    def succeeded(self):
        """Asserts that the command succeeded; returns the result."""
        assert self.status == 0, self
        return self

    def quiet(self):
        """Asserts that it also wrote no error; returns the result."""
        assert self.succeeded().stderr == "", self
        return self


def run_here(capfd, name, *arguments):
    """Runs a command in this process, which is quicker.

    Several commands define the same flags. The command, `"train"`, is imported
    for the call, and its flags go with it.
    """
    module_name = f"experiments.{name}"
    sys.modules.pop(module_name, None)
    module = importlib.import_module(module_name)
    capfd.readouterr()
    try:
        _cli.run(module, map(str, arguments))
        raise AssertionError("absl exits.")
    except SystemExit as exit_:
        status = exit_.code or 0
    finally:
        for flag in list(flags.FLAGS.get_flags_for_module(module_name)):
            delattr(flags.FLAGS, flag.name)
        flags.FLAGS.unparse_flags()
        del sys.modules[module_name]
    return Result(status, *capfd.readouterr())


def run_alone(name, *arguments):
    """Runs a command as a user does, in a process of its own."""
    return run_python("-m", "experiments", name, *arguments)


def without(folder, *modules):
    """The environment of a process that can import all but some modules."""
    for module in modules:
        text = f"raise RuntimeError('{module} is imported')"
        (folder / f"{module}.py").write_text(text)
    return {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}"}


def run_python(*arguments, stdin="", stdout=subprocess.PIPE, env=None):
    """Runs Python with a command line, and returns the `Result`."""
    process = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env=env,
        input=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=600,
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
    for part in parts:
        assert str(part) in result.stderr
