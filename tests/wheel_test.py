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

pytestmark = pytest.mark.slow


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


def files(folder):
    return {
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def test_wheel_holds_the_package_and_its_commands(installed):
    names = {path.name for path in installed.iterdir()}
    [info] = [name for name in names if name.endswith(".dist-info")]
    assert names == {"bin", "tpt_keras", info}
    assert files(installed / "bin") == {pathlib.Path("tpt_keras")}
    assert (installed / "tpt_keras" / "py.typed").is_file()
    # All but the benchmarks.
    assert files(installed / "tpt_keras" / "experiments") == {
        path
        for path in files(ROOT / "experiments")
        if path.parts[0] != "benchmarks"
    }
    for folder in ("serving/config", "visualization/pages"):
        assert files(ROOT / "tpt_keras" / folder) == files(
            installed / "tpt_keras" / folder
        )


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


def test_readme_starts_where_only_the_package_is(installed, tmp_path):
    text = (ROOT / "README.md").read_text()
    text = text.partition("\n## Install\n")[2].partition("\n## ")[0]
    [block] = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
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
    assert result.stdout.splitlines()[-1] == "-2, 0, 3, 15"
