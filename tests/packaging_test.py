"""setup.py declares every package that the code imports."""

import ast
import functools
import importlib.metadata
import pathlib
import re
import runpy
import sys

import pytest
import setuptools

import tpt_keras

ROOT = pathlib.Path(tpt_keras.__file__).parents[1]
OURS = {"experiments", "tests", "tpt_keras"}
# The places that may import the packages of an extra.
PLACES = {
    "analysis": ("analysis/", "visualization/", "experiments/playground.py"),
    "benchmarks": ("experiments/benchmarks/", "checkpoints/"),
    "hub": ("models/stored.py",),
    "jax": ("compilation.py", "training/", "experiments/benchmarks/"),
    "onnx": ("serving/",),
    "playground": ("experiments/playground.py", "visualization/"),
    "serving": ("serving/", "experiments/benchmarks/"),
    "torch": (
        "checkpoints/",
        "compilation.py",
        "serving/onnx_export.py",
        "training/backends/",
        "training/optimizers.py",
        "experiments/benchmarks/",
    ),
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


def third_party_imports(folder):
    """Pairs of a file and the top-level name of what it imports."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            for name in {name.partition(".")[0] for name in names}:
                if name not in OURS | sys.stdlib_module_names:
                    yield path.relative_to(ROOT).as_posix(), name


# Slow: it reads the metadata of everything that is installed.
distributions_of_modules = functools.cache(
    importlib.metadata.packages_distributions
)


def distributions(module):
    found = distributions_of_modules().get(module)
    assert found, f"{module} is not installed"
    # Of a namespace such as `google`, any may be the one.
    return {canonical(name) for name in found}


@pytest.mark.parametrize("folder", ["tpt_keras", "experiments"])
def test_every_import_is_declared_where_it_is_used(declared, folder):
    for path, module in third_party_imports(folder):
        needed = distributions(module)
        extras = [
            extra
            for extra in ("", *PLACES)
            if needed & declared[extra]
            and (not extra or any(place in path for place in PLACES[extra]))
        ]
        assert extras, f"{path} imports {module}"


def test_readme_lists_every_extra(declared):
    table = (ROOT / "README.md").read_text().partition("| extra |")[2]
    rows = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted(rows) == sorted(declared.keys() - {"", "dev", "docs", "test"})
