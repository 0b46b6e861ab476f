"""setup.py declares what the code imports, and the wheel has all files."""

import ast
import importlib.metadata
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import venv

import pytest
import setuptools
from packaging.requirements import Requirement

from tests.experiments.command import ROOT

OURS = {"experiments", "tests", "tpt_keras"}
# Packages that only these files and folders import.
IMPORTERS = {
    "jax": "compilation.py training/backends/jax.py",
    "keras_tuner": "tuning/",
    "mathematics_dataset": "data_generators/mathematics/",
    "matplotlib": "visualization/",
    "sklearn": "analysis/",
    "sympy": "data_generators/mathematics/",
    "tensorboard": "training/state/logs.py",
    "tensorflow": "compilation.py data_generators/ language_model/training "
    "serving/ tokenizers/graph_tokenizer.py training/backends/tensorflow "
    "experiments/benchmarks/",
    "tensorflow_datasets": "data_generators/mathematics/",
    "torch": "checkpoints/ compilation.py serving/onnx_export.py "
    "training/backends/torch.py training/optimizers.py "
    "experiments/benchmarks/",
}


def canonical(requirement):
    name = re.match(r"[\w.-]+", requirement)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def declared():
    """The distributions of every extra; those of all users under ''."""
    caught = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setuptools, "setup", caught.update)
        patch.chdir(ROOT)
        runpy.run_path(str(ROOT / "setup.py"))
    extras = {"": caught["install_requires"], **caught["extras_require"]}
    return {
        extra: set(map(canonical, requirements))
        for extra, requirements in extras.items()
    }


def third_party_imports():
    """Pairs of a file and the top-level name of what it imports."""
    for path in [*ROOT.glob("tpt_keras/**/*.py"), *ROOT.glob("exp*/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            for name in {name.partition(".")[0] for name in names}:
                if name not in OURS | sys.stdlib_module_names:
                    yield path.relative_to(ROOT).as_posix(), name


def test_packages_stay_in_their_files_and_are_declared(declared):
    # Slow: it reads the metadata of everything that is installed.
    distributions = importlib.metadata.packages_distributions()
    of_users = declared.keys() - {"dev", "docs", "test"}
    known = set().union(*(declared[extra] for extra in of_users))
    for path, package in third_party_imports():
        importers = IMPORTERS.get(package, "/").split()
        assert any(each in path for each in importers), (path, package)
        # Of a namespace such as `google`, any may be the one.
        assert set(map(canonical, distributions[package])) & known, package


def test_readme_lists_every_extra(declared):
    table = (ROOT / "README.md").read_text().partition("| extra |")[2]
    rows = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted(rows) == sorted(declared.keys() - {"", "dev", "docs", "test"})


def solver_files():
    """The files of the trained solver, without its exports."""
    folder = pathlib.Path("saved_models", "tp_transformer_mathematics")
    names = ("README.md", "config.json", "model.int8.safetensors")
    return {folder / name for name in names}


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder that the package is installed into, without its dependencies."""
    source = tmp_path_factory.mktemp("source")
    # A copy, because setuptools takes what an older build left beside it.
    for name in ("experiments", "tpt_keras"):
        shutil.copytree(ROOT / name, source / name)
    for path in solver_files():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, source / path)
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
        timeout=600,
    )
    return target


def files(folder):
    return {
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


@pytest.mark.slow
def test_wheel_holds_the_package_and_its_commands(installed):
    names = {path.name for path in installed.iterdir()}
    [info] = [name for name in names if name.endswith(".dist-info")]
    assert names == {"bin", "tpt_keras", info}
    assert files(installed / "bin") == {pathlib.Path("tpt_keras")}
    package = files(ROOT / "tpt_keras")
    # All but the benchmarks.
    commands = {
        pathlib.Path("experiments") / path
        for path in files(ROOT / "experiments")
        if path.parts[0] != "benchmarks"
    }
    assert files(installed / "tpt_keras") == package | commands | solver_files()
    for path in commands:
        # The folder has another name there.
        text = (installed / "tpt_keras" / path).read_text()
        assert "from experiments" not in text


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


@pytest.mark.slow
def test_readme_starts_where_only_the_package_is(installed, tmp_path):
    text = (ROOT / "README.md").read_text()
    text = text.partition("\n## Install\n")[2].partition("\n## ")[0]
    [block] = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    extras = ",".join(re.findall(r"pip install \"\.\[(.*?)\]", block))
    scripts = make_environment(tmp_path / "venv", installed, extras)
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
        timeout=600,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == "-2, 0, 3, 15"
