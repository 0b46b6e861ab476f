"""The frame of the commands: list, help, flags, flagfiles, output, refusals."""

import errno
import importlib
import os
import pathlib
import re
import sys

import pytest
import tensorflow as tf
from absl import flags

import tpt_keras
from experiments import __main__ as experiments_main
from experiments._cli import _with_home
from experiments._cli import line_of
from tests.experiments.command import ROOT
from tests.experiments.command import assert_refused
from tests.experiments.command import run_python
from tests.experiments.command import without
from tpt_keras.training.config import DataConfig
from tpt_keras.training.config import TrainingConfig

FULL = os.strerror(errno.ENOSPC)
COMMANDS = sorted(
    ".".join(path.relative_to(ROOT / "experiments").with_suffix("").parts)
    for path in (ROOT / "experiments").rglob("*.py")
    if not path.name.startswith("_")
)


def test_list_has_every_command_in_a_line(monkeypatch, capfd):
    def run_main(*arguments):
        monkeypatch.setattr(sys, "argv", ["tpt_keras", *arguments])
        experiments_main.main()
        return capfd.readouterr().out

    assert run_main("--version") == f"tpt_keras {tpt_keras.__version__}\n"
    lines = run_main().splitlines()
    for name in COMMANDS:
        [line] = [line for line in lines if line.split()[:1] == [name]]
        assert line.endswith(".")
    flagfiles = lines[lines.index("Flagfiles that come along:") + 1 :]
    assert {"demo.cfg", "tune.cfg"} <= set(" ".join(flagfiles).split())
    assert max(map(len, lines)) <= 80
    with pytest.raises(SystemExit) as caught:
        run_main("trian", "--model_dir=x")
    assert caught.value.code == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "trian" in captured.err
    assert "train" in captured.err


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_docstring_and_flags(run, name):
    result = run(name, "--help").quiet()
    module = ROOT / "experiments" / f"{name.replace('.', '/')}.py"
    text = module.read_text()
    assert f"    tpt_keras {name}" in result.stdout
    assert text.split('"""')[1] in result.stdout
    shown = re.findall(r"^  --(?:\[no\])?(\w+)", result.stdout, re.MULTILINE)
    defined = re.findall(r'DEFINE_\w+\(\s*"(\w+)"', text)
    assert {*defined} <= {*shown}


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
        if isinstance(expected, tuple):
            expected = list(expected)
        # Each optimizer has its own `weight_decay`.
        if name not in ("modules", "weight_decay"):
            assert flag.default == expected, name
    shown = train_flags["weight_decay"].help
    assert shown.endswith("Default: 0.0. Of Muon: 0.1.")


def test_flagfile_of_the_user_comes_first(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("demo.cfg").write_text("--batch_size=few")
    assert_refused(run("train", "--flagfile=demo.cfg"), "batch_size", "few")


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
        result = run_python("-m", "tpt_keras", stdout=closed)
    assert (result.status, result.stderr) == (141, "")


@pytest.mark.parametrize(
    ("backend", "main", "check", "status", "stdout", "stderr"),
    [
        ("numpy", "", "", 2, "", "torch"),
        # Before the slow imports.
        ("tensorflow", "", "check_choice('a_flag', 1, ())", 2, "", "a_flag 1"),
        ("jax", "log.info('`a_flag` is %d', 1)", "", 0, "--a_flag is 1\n", ""),
        ("jax", "print('Ω'); log.info('Ω')", "", 0, "\\u03a9\n" * 2, ""),
        ("jax", "raise KeyError('defect')", "", 1, "", "Traceback"),
    ],
    ids=["backend", "check", "log", "ascii", "defect"],
)
def test_frame_of_a_command(
    tmp_path, backend, main, check, status, stdout, stderr
):
    (tmp_path / "a_command.py").write_text(
        "import logging\n"
        "from absl import flags\n"
        "from tpt_keras.errors import check_choice\n"
        "log = logging.getLogger('tpt_keras.a')\n"
        "flags.DEFINE_integer('a_flag', 1, 'Help.')\n"
        f"def main(): {main or 'pass'}\n"
        f"def check(): {check or 'pass'}\n"
    )
    script = "import a_command; from experiments import _cli"
    env = {"KERAS_BACKEND": backend, "PYTHONIOENCODING": "ascii"}
    result = run_python(
        *("-c", f"{script}; _cli.run(a_command, [])"),
        env=without(tmp_path, "tensorflow") | env,
    )
    assert (result.status, result.stdout) == (status, stdout)
    assert stderr in result.stderr
    assert bool(stderr) == bool(result.stderr)


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (tf.errors.ResourceExhaustedError(None, None, f"a; {FULL}"), FULL),
        # HDF5's, with the number in its text alone.
        (OSError(f"Can't write data (errno = 28, '{FULL}')"), FULL),
        (PermissionError(errno.EACCES, "No permission", "/sys/a"), "/sys/a"),
        (tf.errors.ResourceExhaustedError(None, None, "OOM"), None),
    ],
)
def test_fault_of_the_disk_is_one_line(error, part):
    line = line_of(error)
    assert part in line if part else line is None


@pytest.mark.parametrize(
    ("name", "argument", "parts"),
    [
        ("evaluate", "--model=no/model", ["--model=no/model: "]),
        ("attention", "--model=~/model", ["--model=home/model: "]),
        ("report", "--models=.,~/model", ["--models=", "home/model"]),
        ("solve", "--onnx_model=no/model", ["--onnx_model", "no/model"]),
        ("solve", "--model=hf://a/b", ["tpt_keras[hub]"]),
        ("solve", "What is 1 + 1?", ["'What is 1 + 1?'", "--question"]),
        ("convert_checkpoint", "--checkpoint=no", ["--checkpoint=no: "]),
        ("export", "--model=no/model", [". --export_dir is needed."]),
        ("quiz", "--count=0", ["--count=0: "]),
        ("train", "--flagfile=no.cfg", ["'no.cfg'", "demo.cfg"]),
    ],
)
def test_refusal_before_the_slow_imports(
    run, monkeypatch, name, argument, parts
):
    monkeypatch.setenv("HOME", "home")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.setattr("experiments._cli.import_backend", None)
    assert_refused(run(name, argument), *parts)


def test_home_in_a_flag(monkeypatch):
    monkeypatch.setenv("HOME", "home")
    assert _with_home("--options=a=1,path=~/b") == "--options=a=1,path=home/b"
    assert _with_home("--models=~,a~,~/b") == "--models=home,a~,home/b"
    assert _with_home("--question=2,~/3") == "--question=2,~/3"
