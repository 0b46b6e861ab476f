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
import yaml

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
# Imported by name or by other packages.
INDIRECT = {
    "importlib-resources",
    "mathematics-dataset",
    "onnxscript",
    "safetensors",
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


def test_tests_import_what_their_extra_declares(declared):
    for path, module in third_party_imports("tests"):
        needed = distributions(module)
        assert needed & (declared[""] | declared["test"]), (path, module)


def test_every_declared_package_is_imported(declared):
    imported = set().union(
        *(
            distributions(module)
            for folder in ("tpt_keras", "experiments")
            for _, module in third_party_imports(folder)
        )
    )
    for extra in ("", *PLACES):
        assert declared[extra] <= imported | INDIRECT, extra


def test_all_versions_are_tested_ones(declared):
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {canonical(line) for line in lines if "==" in line}
    # pip and setuptools come with Python.
    assert set().union(*declared.values()) <= pinned | {"setuptools"}


def test_readme_lists_every_extra(declared):
    table = (ROOT / "README.md").read_text().partition("| extra |")[2]
    rows = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted(rows) == sorted(declared.keys() - {"", "dev", "docs", "test"})


def test_the_citation_has_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == tpt_keras.__version__


def test_the_folders_that_are_tested_on_jax_exist():
    makefile = (ROOT / "Makefile").read_text()
    [folders] = re.findall(r"addprefix tests/,(.*?)\)", makefile)
    assert all((ROOT / "tests" / name).is_dir() for name in folders.split())
