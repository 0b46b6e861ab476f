"""The list of the commands, their help, and how messages name them."""

import ast
import dataclasses
import os
import pathlib
import sys
import types

import pytest

from experiments import __main__ as experiments_main
from experiments import _cli
from experiments._model_flags import ModelFlags
from experiments._problems import Problems
from tests.conftest import MODULE
from tests.experiments.command import ROOT
from tests.experiments.command import assert_refused
from tests.experiments.command import run_alone
from tests.experiments.command import run_python
from tpt_keras.errors import command
from tpt_keras.training.config import TrainingConfig
from tpt_keras.tuning.search_space import SEARCHED
from tpt_keras.tuning.search_space import SearchSpace

COMMANDS = sorted(
    ".".join(path.relative_to(ROOT / "experiments").with_suffix("").parts)
    for path in (ROOT / "experiments").rglob("*.py")
    if not path.name.startswith("_")
)
# Whose fields are flags of theirs.
CONFIGS = {
    **dict.fromkeys(("kept_variance", "reconstruct", "roles"), (Problems,)),
    "quiz": (ModelFlags, Problems),
    "replicate": (TrainingConfig,),
    "solve": (ModelFlags,),
    "train": (TrainingConfig,),
    "tune": (SearchSpace, TrainingConfig),
}
# Which devices train.
DEVICES = {"distribution", "num_gpus", "logical_cpus"}
# What several trainings have of their own is no flag.
NOT_FLAGS = {
    "replicate": {"seed", "init_from", "text_file", "segment_length"},
    "tune": {
        "init_from",
        "text_file",
        "segment_length",
        "train_minutes",
        *SEARCHED,
    },
}


@pytest.fixture
def run_main(monkeypatch, capfd):
    """`python -m experiments`, up to the command."""

    def run_main(*arguments):
        monkeypatch.setattr(sys, "argv", ["tpt_keras", *arguments])
        experiments_main.main()
        return capfd.readouterr().out

    return run_main


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_the_list(run_main, arguments):
    lines = run_main(*arguments).splitlines()
    assert {"train", "solve", "benchmarks.decoding"} <= set(COMMANDS)
    for name in COMMANDS:
        [line] = [line for line in lines if line.split()[:1] == [name]]
        assert line.endswith(".")
    assert "demo.cfg" in lines[-1]
    assert max(map(len, lines)) <= 80


def test_an_unknown_command(run_main, capfd):
    with pytest.raises(SystemExit) as exit_:
        run_main("trian", "--model_dir=x")
    assert exit_.value.code == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    [line] = captured.err.splitlines()
    assert line.startswith("error: Unknown command 'trian'. Known commands: ")
    assert "train" in line


@pytest.mark.parametrize("name", COMMANDS)
def test_help(run, name):
    result = run(name, "--help")
    assert (result.status, result.stderr) == (0, "")
    module = ROOT / "experiments" / f"{name.replace('.', '/')}.py"
    tree = ast.parse(module.read_text())
    summary = ast.get_docstring(tree).splitlines()[0]
    lines = result.stdout.splitlines()
    assert lines[0] == summary
    assert f"    tpt_keras {name}" in result.stdout
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
    defined |= {
        field.name
        for config_class in CONFIGS.get(name, ())
        for section in getattr(config_class, "SECTIONS", (config_class,))
        for field in dataclasses.fields(section)
    }
    if TrainingConfig in CONFIGS.get(name, ()):
        defined |= DEVICES
    assert shown == defined - NOT_FLAGS.get(name, set())
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("flag", ["-h", "-help", "--helpshort", "--helpfull"])
def test_other_ways_to_ask_for_help(run, flag):
    result = run("export", flag)
    assert (result.status, result.stderr) == (0, "")


@pytest.mark.slow
def test_as_a_user_starts_it():
    asked = "--help"
    results = [
        run_python("-m", "experiments", "export", asked),
        run_alone("export", asked),
    ]
    for result in results:
        assert (result.status, result.stderr) == (0, "")
        assert "    python -m experiments.export" in result.stdout
        assert "--export_dir: " in result.stdout
    assert results[0] == results[1]
    refused = run_python("-m", "experiments", "evaluate", "--model_dir=/")
    assert_refused(refused, "python -m experiments.train")


@pytest.mark.parametrize(
    ("started", "expected"),
    [
        ("experiments.evaluate", "python -m experiments.train"),
        ("experiments.__main__", "python -m experiments.train"),
        ("tpt_keras.experiments.evaluate", "tpt_keras train"),
        ("pytest.__main__", "tpt_keras train"),
        (None, "tpt_keras train"),
    ],
)
def test_the_name_of_a_command(monkeypatch, started, expected):
    main = types.ModuleType("__main__")
    if started:
        main.__spec__ = types.SimpleNamespace(name=started)
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert command("train") == expected


def sources():
    return [
        path
        for folder in ("experiments", "tpt_keras")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]


def texts_of(tree):
    """The strings of a source that are no docstrings."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and ast.get_docstring(node) is not None
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            yield node.value


def test_messages_name_commands_as_they_were_started():
    """Or what they advise would not work for who installed the package."""
    known = {ROOT / "experiments" / "_cli.py", ROOT / "tpt_keras" / "errors.py"}
    found = {
        path
        for path in sources()
        for text in texts_of(ast.parse(path.read_text()))
        if "-m experiments" in text or "experiments." in text
    }
    assert found == known


def test_commands_import_each_other_by_relative_names():
    """For the package has another name where it is installed."""
    absolute = [
        (path, node.module)
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").split(".")[0] == "experiments"
        and node.level == 0
    ]
    assert not absolute


@pytest.mark.parametrize(
    "arguments", [["--flagfile=demo.cfg"], ["--flagfile", "demo.cfg"]]
)
def test_a_flagfile_that_comes_along(run, tmp_path, arguments):
    data_dir = tmp_path / "nothing"
    result = run(
        "train",
        *arguments,
        f"--data_dir={data_dir}",
        f"--model_dir={tmp_path / 'model'}",
    )
    # It is the file that says which module.
    assert_refused(result, data_dir, f"--modules={MODULE}")


def test_a_flagfile_of_the_users(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("demo.cfg").write_text("--batch_size=few")
    assert_refused(run("train", "--flagfile=demo.cfg"), "batch_size", "few")


def test_a_flagfile_that_is_not_there(run):
    result = run("train", "--flagfile=no.cfg")
    assert_refused(result, "'no.cfg'", ", ".join(_cli.flagfiles()))
    assert_refused(run("train", "--flagfile"), "--flagfile")


@pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="needs a device that is full"
)
def test_output_that_cannot_be_written():
    with open("/dev/full", "w") as full:
        result = run_python("-m", "experiments", stdout=full)
    assert_refused(result, "No space left on device")


def test_output_that_nobody_reads():
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as nobody:
        result = run_python("-m", "experiments", stdout=nobody)
    assert (result.status, result.stderr) == (141, "")
