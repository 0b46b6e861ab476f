"""The frame of the commands: list, help, flags, flagfiles, output, backend."""

import ast
import errno
import importlib
import os
import pathlib
import sys

import pytest
import tensorflow as tf
from absl import flags

import tpt_keras
from experiments import __main__ as experiments_main
from experiments._cli import line_of
from tests.experiments.command import ROOT
from tests.experiments.command import assert_refused
from tests.experiments.command import run_python
from tests.experiments.command import without
from tpt_keras.errors import UnreadableFileError
from tpt_keras.errors import UsageError
from tpt_keras.training.config import OPTIMIZERS
from tpt_keras.training.config import DataConfig
from tpt_keras.training.config import TrainingConfig

FULL = os.strerror(errno.ENOSPC)
COMMANDS = sorted(
    ".".join(path.relative_to(ROOT / "experiments").with_suffix("").parts)
    for path in (ROOT / "experiments").rglob("*.py")
    if not path.name.startswith("_")
)


@pytest.fixture
def run_main(monkeypatch, capfd):
    """`tpt_keras`, up to the command."""

    def run_main(*arguments):
        monkeypatch.setattr(sys, "argv", ["tpt_keras", *arguments])
        experiments_main.main()
        return capfd.readouterr().out

    return run_main


def test_list_has_every_command_in_a_line(run_main):
    assert run_main("--version") == f"tpt_keras {tpt_keras.__version__}\n"
    lines = run_main().splitlines()
    for name in COMMANDS:
        [line] = [line for line in lines if line.split()[:1] == [name]]
        assert line.endswith(".")
    flagfiles = lines[lines.index("Flagfiles that come along:") + 1 :]
    assert {"demo.cfg", "tune.cfg"} <= set(" ".join(flagfiles).split())
    assert max(map(len, lines)) <= 80


def test_unknown_command_is_refused(run_main, capfd):
    with pytest.raises(SystemExit) as caught:
        run_main("trian", "--model_dir=x")
    assert caught.value.code == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "trian" in captured.err
    assert "train" in captured.err


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_docstring_and_flags(run, name):
    result = run(name, "--help")
    assert (result.status, result.stderr) == (0, "")
    module = ROOT / "experiments" / f"{name.replace('.', '/')}.py"
    tree = ast.parse(module.read_text())
    lines = result.stdout.splitlines()
    assert lines[0] == ast.get_docstring(tree).splitlines()[0]
    assert f"    tpt_keras {name}" in result.stdout
    assert max(map(len, lines)) <= 80
    shown = {
        line.split()[0].strip(":-").removeprefix("[no]")
        for line in lines
        if line.startswith("  --")
    }
    defined = {
        call.args[0].value
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr.startswith("DEFINE_")
    }
    assert defined <= shown


@pytest.fixture
def train_flags():
    sys.modules.pop("experiments.train", None)
    importlib.import_module("experiments.train")
    found = flags.FLAGS.get_flags_for_module("experiments.train")
    yield {flag.name: flag for flag in found}
    for flag in found:
        delattr(flags.FLAGS, flag.name)
    del sys.modules["experiments.train"]


def test_every_field_has_a_flag_with_its_default(train_flags):
    config = TrainingConfig(DataConfig(["m"]))
    for name, expected in config.flat().items():
        flag = train_flags[name]
        assert flag.help.endswith("."), name
        assert "`" not in flag.help
        if isinstance(expected, tuple):
            expected = list(expected)
        if name == "weight_decay":  # every optimizer has its own
            expected = None
        assert name == "modules" or flag.default == expected, name


def test_help_has_the_defaults_of_all_optimizers(train_flags):
    shown = train_flags["weight_decay"].help
    assert f"Default: {OPTIMIZERS['adam'].weight_decay}." in shown
    for name, optimizer in OPTIMIZERS.items():
        is_told = f"Of {optimizer.__name__}: {optimizer.weight_decay}." in shown
        assert is_told == (name in ("adamw", "muon"))


def test_flagfile_of_the_paper_is_the_default(train_flags):
    paper = ROOT / "experiments" / "configs" / "paper.cfg"
    flags.FLAGS(["train", f"--flagfile={paper}", "--model_dir=x"])
    given = {
        name
        for name in train_flags
        if flags.FLAGS[name].present and name != "model_dir"
    }
    changed = {
        name
        for name in given
        if flags.FLAGS[name].value != train_flags[name].default
    }
    flags.FLAGS.unparse_flags()
    assert {"learning_rate", "beta_2", "global_clipnorm", "schedule"} <= given
    assert not changed


def test_flagfile_of_the_user_comes_first(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("demo.cfg").write_text("--batch_size=few")
    assert_refused(run("train", "--flagfile=demo.cfg"), "batch_size", "few")
    assert_refused(run("train", "--flagfile=no.cfg"), "'no.cfg'", "demo.cfg")


@pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="needs a device that is full"
)
def test_output_that_cannot_be_written_is_an_error():
    with open("/dev/full", "w") as full:
        result = run_python("-m", "experiments", stdout=full)
    assert_refused(result, "No space left on device")


def test_closed_pipe_ends_quietly():
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as closed:
        result = run_python("-m", "experiments", stdout=closed)
    assert (result.status, result.stderr) == (141, "")


@pytest.fixture
def run_script(tmp_path):
    """Runs a command's `main` beside a TensorFlow that cannot be imported."""
    environment = without(tmp_path, "tensorflow")

    def run_script(backend, main="pass", check="pass"):
        script = (
            "import logging, sys\n"
            "from absl import flags\n"
            "from experiments import _cli\n"
            "from tpt_keras.errors import *\n"
            "flags.DEFINE_integer('batch_size', 1, 'Help.')\n"
            f"def main(): {main}\n"
            f"def check(): {check}\n"
            "_cli.run(main, check)"
        )
        env = {**environment, "KERAS_BACKEND": backend}
        return run_python("-c", script, env=env)

    return run_script


def test_backend_without_support_is_refused(run_script):
    assert_refused(run_script("numpy"), "numpy", "torch")


def test_flags_are_checked_before_the_slow_imports(run_script):
    result = run_script(
        "tensorflow", check="check_positive_integer('batch_size', 0)"
    )
    assert_refused(result, "--batch_size")


def test_log_is_printed_with_flags_for_fields(run_script):
    result = run_script(
        "jax", "logging.getLogger('tpt_keras.a').info('`batch_size` is %d', 1)"
    )
    assert result == type(result)(0, "--batch_size is 1\n", "")


def test_defect_keeps_its_traceback(run_script):
    result = run_script("jax", "raise KeyError('defect')")
    assert result.status == 1
    assert "Traceback" in result.stderr


def test_commands_import_each_other_by_relative_names():
    """The package has another name where it is installed."""
    absolute = [
        (path, node.module)
        for path in (ROOT / "experiments").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").split(".")[0] == "experiments"
        and node.level == 0
    ]
    assert not absolute


def test_error_keeps_its_line():
    for error in (
        UsageError("The file 'a' is damaged."),
        UnreadableFileError("The file 'a' is damaged.", "a"),
    ):
        assert line_of(error) == str(error)
    line = line_of(OSError(errno.EIO, os.strerror(errno.EIO), "a"))
    assert "[Errno 5] Input/output error: 'a'" in line
    assert "\n" not in line
    assert line_of(KeyError("Permission")) is None


@pytest.mark.parametrize(
    ("error", "is_line"),
    [
        (tf.errors.ResourceExhaustedError(None, None, f"a; {FULL}"), True),
        # HDF5's, with the number in its text alone.
        (OSError(f"Can't write data (errno = 28, '{FULL}')"), True),
        (tf.errors.ResourceExhaustedError(None, None, "OOM"), False),
    ],
)
def test_full_disk_of_a_library_is_one_line(error, is_line):
    assert (FULL in (line_of(error) or "")) == is_line
