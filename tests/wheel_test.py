"""What `pip install` brings: the package, its commands, their flagfiles."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests.experiments.command import ROOT
from tests.experiments.command import assert_refused
from tests.experiments.command import run_python

pytestmark = pytest.mark.slow
TRAINED = "tp_transformer_mathematics"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder that the package is installed into, without its dependencies."""
    source = tmp_path_factory.mktemp("source")
    # Of its own, for setuptools takes what an older build left beside it.
    for name in ("experiments", "tpt_keras"):
        shutil.copytree(ROOT / name, source / name)
    trained = f"saved_models/{TRAINED}"
    shutil.copytree(ROOT / trained, source / trained)
    # What a user exported is nobody else's.
    (source / trained / "1").mkdir()
    (source / trained / "1" / "saved_model.pb").touch()
    for name in ("LICENSE", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, source)
    target = tmp_path_factory.mktemp("target")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet"),
            *("--no-deps", "--no-build-isolation", "--no-index"),
            *("--disable-pip-version-check", "--target", target, source),
        ],
        check=True,
    )
    return target


@pytest.fixture
def run_installed(installed, tmp_path):
    """Runs the installed command, in a folder where nothing else is."""

    def run_installed(*arguments):
        return run_python(
            installed / "bin" / "tpt_keras",
            *arguments,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(installed)},
        )

    return run_installed


def test_only_names_of_ours(installed):
    names = {path.name for path in installed.iterdir()}
    [info] = [name for name in names if name.endswith(".dist-info")]
    assert info.startswith("tpt_keras-")
    assert names == {"bin", "tpt_keras", info}
    assert [path.name for path in (installed / "bin").iterdir()] == [
        "tpt_keras"
    ]


def test_all_commands_and_flagfiles(installed):
    def files(folder):
        return {
            path.relative_to(folder)
            for path in folder.rglob("*")
            if path.suffix in (".py", ".cfg")
        }

    expected = files(ROOT / "experiments")
    assert pathlib.Path("configs/demo.cfg") in expected
    assert files(installed / "tpt_keras" / "experiments") == expected


def test_the_list(run_installed):
    result = run_installed()
    assert (result.status, result.stderr) == (0, "")
    assert "Commands (tpt_keras NAME --help tells more):" in result.stdout
    assert "demo.cfg" in result.stdout


def test_help(run_installed):
    result = run_installed("train", "--help")
    assert (result.status, result.stderr) == (0, "")
    assert "    tpt_keras train --flagfile=demo.cfg" in result.stdout
    assert "--train_steps: " in result.stdout


def test_a_message_and_a_flagfile(run_installed):
    result = run_installed(
        "train", "--flagfile=demo.cfg", "--data_dir=x", "--model_dir=y"
    )
    assert_refused(
        result,
        "'x'",
        "tpt_keras prepare_data --modules=numbers__place_value --data_dir=x",
    )


def test_generation_with_workers(run_installed, tmp_path):
    """They have to find the command's module, too."""
    result = run_installed(
        "prepare_data",
        "--modules=numbers__place_value",
        "--data_dir=data",
        "--train_examples=30",
        "--evaluation_examples=5",
        "--num_workers=2",
    )
    assert (result.status, result.stderr) == (0, "")
    assert "data/mathematics_dataset/numbers__place_value" in result.stdout
    assert not list(tmp_path.rglob("*.py"))


def test_a_trained_model(installed, tmp_path):
    folder = installed / "tpt_keras" / "saved_models"
    assert {path.name for path in folder.rglob("*") if path.is_file()} == {
        "README.md",
        "config.json",
        "model.int8.safetensors",
    }
    script = (
        "import tpt_keras\n"
        f"model = tpt_keras.Transformer.from_preset({TRAINED!r})\n"
        "print(*model.solve(['Sort 3, -2, 15, 0.']))"
    )
    result = run_python(
        *("-c", script),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )
    assert (result.status, result.stdout) == (0, "-2, 0, 3, 15\n")
