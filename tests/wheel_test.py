"""The installed package, its commands and their flagfiles."""

import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import venv

import pytest
from packaging.requirements import Requirement

from tests.experiments.command import ROOT
from tests.experiments.command import assert_refused
from tests.experiments.command import run_python

pytestmark = pytest.mark.slow
TRAINED = "tp_transformer_mathematics"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder that the package is installed into, without its dependencies."""
    source = tmp_path_factory.mktemp("source")
    # A copy, because setuptools takes what an older build left beside it.
    for name in ("experiments", "tpt_keras"):
        shutil.copytree(ROOT / name, source / name)
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

    def run_installed(*arguments, cwd=tmp_path):
        return run_python(
            installed / "bin" / "tpt_keras",
            *arguments,
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(installed)},
        )

    return run_installed


def test_wheel_holds_one_package_and_one_script(installed):
    names = {path.name for path in installed.iterdir()}
    [info] = [name for name in names if name.endswith(".dist-info")]
    assert names == {"bin", "tpt_keras", info}
    assert [path.name for path in (installed / "bin").iterdir()] == [
        "tpt_keras"
    ]


def test_wheel_is_small(installed):
    files = [path for path in installed.rglob("*") if path.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in files) < 2_000_000


def test_wheel_holds_all_commands_flagfiles_and_pages(installed):
    def files(folder):
        return {
            path.relative_to(folder)
            for path in folder.rglob("*")
            if path.is_file() and path.suffix != ".pyc"
        }

    # All but the benchmarks.
    assert files(installed / "tpt_keras" / "experiments") == {
        path
        for path in files(ROOT / "experiments")
        if path.parts[0] != "benchmarks"
    }
    assert (installed / "tpt_keras" / "py.typed").is_file()
    for folder in ("serving/config", "visualization/pages"):
        assert files(ROOT / "tpt_keras" / folder)
        assert files(ROOT / "tpt_keras" / folder) == files(
            installed / "tpt_keras" / folder
        )


def test_installed_command_has_a_list_and_flagfiles(run_installed):
    result = run_installed()
    assert (result.status, result.stderr) == (0, "")
    assert "tpt_keras NAME --help" in result.stdout
    result = run_installed(
        "train", "--flagfile=demo.cfg", "--data_dir=x", "--model_dir=y"
    )
    assert_refused(
        result,
        "'x'",
        "tpt_keras prepare_data --modules=numbers__place_value --data_dir=x",
    )


def test_installed_command_generates_with_workers(run_installed, tmp_path):
    """The workers have to find the command's module, too."""
    result = run_installed(
        "prepare_data",
        "--modules=numbers__place_value",
        "--data_dir=data",
        "--train_examples=30",
        "--evaluation_examples=5",
        "--num_workers=2",
    )
    assert (result.status, result.stderr) == (0, "")
    assert not list(tmp_path.rglob("*.py"))


@pytest.mark.parametrize(
    ("preset", "places"),
    [
        (TRAINED, {"cwd": ROOT}),  # as README's first lines
        (ROOT / "saved_models" / TRAINED, {}),
    ],
    ids=["clone", "folder"],
)
def test_installed_command_finds_the_trained_solver(
    run_installed, preset, places
):
    result = run_installed(
        "solve",
        f"--preset={preset}",
        "--question=Sort 3, -2, 15, 0.",
        **places,
    )
    assert (result.status, result.stdout) == (0, "-2, 0, 3, 15\n"), result


def needed(requirement):
    """The installed distributions that a requirement needs, itself as well."""
    seen, todo = {}, [requirement]
    while todo:
        wanted = Requirement(todo.pop())
        for extra in {"", *wanted.extras} - seen.setdefault(wanted.name, set()):
            seen[wanted.name].add(extra)
            for text in importlib.metadata.requires(wanted.name) or ():
                marker = Requirement(text).marker
                if marker is None or marker.evaluate({"extra": extra}):
                    todo.append(text)
    return map(importlib.metadata.distribution, seen)


def make_environment(folder, installed, extras):
    """An environment as `pip install ".[extras]"` makes it, without a network.

    Its packages are links to those of the environment of the tests.
    """
    venv.create(folder)
    paths = sysconfig.get_paths("venv", {"base": folder})
    packages = pathlib.Path(paths["purelib"])
    (packages / "tpt_keras").symlink_to(installed / "tpt_keras")
    for distribution in needed(f"tpt_keras[{extras}]"):
        for name in {path.parts[0] for path in distribution.files}:
            link = packages / name
            if name != ".." and "tpt_keras" not in name and not link.exists():
                link.symlink_to(distribution.locate_file(name))
    script = (installed / "bin" / "tpt_keras").read_text().partition("\n")[2]
    command = pathlib.Path(paths["scripts"], "tpt_keras")
    command.write_text(f"#!{paths['scripts']}/python\n{script}")
    command.chmod(0o755)
    return paths["scripts"]


@pytest.mark.parametrize(
    ("section", "left"),
    [
        ("tpt_keras: the TP-Transformer for Keras", "-2, 0, 3, 15"),
        ("Ask the trained solver", "15"),
        ("Look inside", "roles/roles.html"),
    ],
)
def test_readme_runs_where_only_its_extras_are(
    installed, tmp_path, section, left
):
    text = (ROOT / "README.md").read_text()
    text = re.split(rf"^#+ {section}\n", text, flags=re.MULTILINE)[1]
    [block] = re.findall(
        r"```sh\n(.*?)```", text.partition("\n## ")[0], re.DOTALL
    )
    extras = ",".join(re.findall(r"pip install \"\.\[(.*?)\]", block))
    scripts = make_environment(tmp_path / "venv", installed, extras)
    (tmp_path / "saved_models").symlink_to(ROOT / "saved_models")
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("KERAS_BACKEND", "PYTHONPATH")
    }
    result = subprocess.run(
        ["bash", "-e", "-c", f"pip() {{ :; }}\n{block}"],
        cwd=tmp_path,
        env={**environment, "PATH": f"{scripts}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert left in result.stdout.splitlines()
