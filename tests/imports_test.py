"""The directions of imports, and what the library may not do."""

import ast
import functools
import graphlib
import pathlib
import re

import pytest

import tpt_keras
from tests.experiments.command import run_python
from tests.packaging_test import IMPORTERS

PACKAGE = pathlib.Path(tpt_keras.__file__).parent
# A folder or file imports only those on lines above its own, as in BUILD.md.
ORDER = (
    {"typing"},
    {"errors"},
    {"answer", "compilation", "files", "processes", "settings"},
    {"decoding", "layers", "tokenizers", "visualization"},
    {"models"},
    {"data_generators"},
    {"training"},
    {"analysis", "checkpoints", "language_model", "serving", "tuning"},
)
RANKS = {part: rank for rank, parts in enumerate(ORDER) for part in parts}


def name_of(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(("tpt_keras", *parts))


FILES = {
    name_of(path): path
    for path in PACKAGE.rglob("*.py")
    if path.is_file() and path.name != "__main__.py"  # starts the commands
}


def part_of(name):
    return name.split(".")[1] if "." in name else ""


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text())


@functools.cache
def imported_by(path):
    """The modules that a file imports, also those in its functions."""
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found |= {
                name if name in FILES else node.module
                for name in (f"{node.module}.{a.name}" for a in node.names)
            }
    return found


def test_imports_run_one_way():
    assert {part_of(name) for name in FILES} - {""} == set(RANKS)
    wrong = [
        f"{name} imports {module}"
        for name, path in FILES.items()
        for module in imported_by(path)
        if module in FILES
        and part_of(name) not in ("", part_of(module))
        and RANKS[part_of(module)] >= RANKS[part_of(name)]
    ]
    assert not wrong


def test_files_import_each_other_without_circles():
    graph = {
        name: imported_by(path) & FILES.keys() - {name}
        for name, path in FILES.items()
        if path.name != "__init__.py"
    }
    graphlib.TopologicalSorter(graph).prepare()


def texts_of(tree):
    """The strings of a file that are no docstrings."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and ast.get_docstring(node) is not None
    }
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in docstrings:
            yield node.value


def test_library_knows_no_command_line():
    wrong = []
    for name, path in FILES.items():
        tree = tree_of(path)
        wrong += [
            f"{name}: {text!r}"
            for text in texts_of(tree)
            if re.search(r"(?<![\w-])--[a-z]", text) or "experiments" in text
        ]
    assert not wrong


HEAVY = sorted(IMPORTERS.keys() - {"tensorflow"})


@pytest.mark.parametrize(
    ("before", "modules", "heavy"),
    [
        ("sys", "tpt_keras", ["keras", "tensorflow", *HEAVY]),
        # Keras imports matplotlib where it is installed.
        pytest.param(
            "keras",
            "tpt_keras.models.stored, tpt_keras.training.train",
            HEAVY,
            marks=pytest.mark.slow,
        ),
        (
            "sys",
            "tpt_keras.serving; tpt_keras.serving.RestClient('localhost:1')",
            ["filelock", "grpc", "keras", "tensorflow"],
        ),
    ],
    ids=["package", "training", "client"],
)
def test_only_what_is_needed_is_imported(before, modules, heavy):
    script = (
        f"import sys, {before}\n"
        "before = set(sys.modules)\n"
        f"import {modules}\n"
        f"print(set({heavy}) & (set(sys.modules) - before))"
    )
    result = run_python("-c", script)
    assert (result.status, result.stdout) == (0, "set()\n"), result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        "from tpt_keras import *; serving.SavedModel, tuning, training",
        "import keras, tpt_keras\n"
        "assert keras.saving.get_registered_object('tpt_keras>EncoderCell')",
        "import os, sys, tpt_keras\n"
        "os.environ.pop('KERAS_BACKEND', None)\n"
        "sys.modules['tensorflow'] = None\n"
        "try: tpt_keras.TPMultiHeadAttention\n"
        "except tpt_keras.UsageError: pass",
    ],
    ids=["names", "registered", "no_tensorflow"],
)
def test_the_package_is_imported(script):
    run_python("-c", script).succeeded()
