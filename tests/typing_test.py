"""The public interface is annotated, apart from functions of tensors."""

import ast
import importlib
import inspect
import pathlib
import re

import pytest

import tpt_keras
from tpt_keras import serving

PACKAGE = pathlib.Path(tpt_keras.__file__).parent
ROOMS = (
    "checkpoints",
    "data_generators",
    "decoding",
    "language_model",
    "layers",
    "models",
    "serving",
    "tokenizers",
)
# Keras has no types of tensors. Their shapes are in the docstrings.
OF_TENSORS = ("language_model", "layers", "models")
GUIDES = [
    PACKAGE.parent / "README.md",
    *PACKAGE.parent.glob("docs/*.md"),
]


def public():
    """All that rooms export and guides import."""
    names = {("tpt_keras", name) for name in tpt_keras.__all__}
    for room in ROOMS:
        module = importlib.import_module(f"tpt_keras.{room}")
        names |= {(module.__name__, name) for name in module.__all__}
    for path in GUIDES:
        names |= set(
            re.findall(
                r"^ *from (tpt_keras[\w.]*) import (\w+)",
                path.read_text(),
                re.M,
            )
        )
    return [
        getattr(importlib.import_module(module), name)
        for module, name in sorted(names)
    ]


def functions_of(thing):
    """A function, or the public methods of a class and of our bases of it."""
    if inspect.isfunction(thing):
        yield thing
    if not inspect.isclass(thing):
        return
    for each in thing.__mro__:
        if not each.__module__.startswith("tpt_keras"):
            continue
        for name, value in vars(each).items():
            if isinstance(value, (classmethod, staticmethod)):
                value = value.__func__
            if isinstance(value, property):
                value = value.fget
            is_public = not name.startswith("_") or name == "__init__"
            # Other than the methods that `dataclasses` makes.
            if (
                is_public
                and inspect.isfunction(value)
                and "<" not in (value.__code__.co_filename)
            ):
                yield value


def test_public_functions_are_annotated():
    functions = {
        inspect.unwrap(function)
        for thing in public()
        for function in functions_of(thing)
    }
    assert len(functions) > 200
    lacking = []
    for function in functions:
        signature = inspect.signature(function)
        kinds = {
            name: parameter.annotation
            for name, parameter in signature.parameters.items()
            if name not in ("self", "cls")
        }
        kinds["return"] = signature.return_annotation
        room = function.__module__.split(".")[1]
        if room in OF_TENSORS and set(kinds.values()) == {signature.empty}:
            continue
        lacking += [
            f"{function.__module__}.{function.__qualname__}: {name}"
            for name, kind in kinds.items()
            if kind is inspect.Signature.empty
        ]
    assert not lacking


@pytest.mark.parametrize("module", [tpt_keras, serving])
def test_checkers_see_the_names_that_are_imported_late(module):
    tree = ast.parse(pathlib.Path(module.__file__).read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = [alias.asname for node in block.body for alias in node.names]
    assert sorted(seen) == sorted(module.__all__)
