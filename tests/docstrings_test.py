import doctest
import importlib
import pathlib
import re

import keras
import pytest

import tpt_keras
from tpt_keras import layers
from tpt_keras.models import AttentionalLSTM
from tpt_keras.models import SequenceToSequence
from tpt_keras.models import SimpleLSTM
from tpt_keras.models import Transformer
from tpt_keras.models import TransformerConfig

PACKAGE = pathlib.Path(tpt_keras.__file__).parent
MODULES = sorted(
    ".".join(("tpt_keras", *path.relative_to(PACKAGE).with_suffix("").parts))
    for folder in (
        "analysis",
        "layers",
        "models",
        "decoding",
        "tokenizers",
        "visualization",
    )
    for path in (PACKAGE / folder).rglob("*.py")
    if ">>>" in path.read_text()
)


class ShapeChecker(doctest.OutputChecker):
    """Takes TensorFlow's way to write a shape for the tuple that it is."""

    def check_output(self, want, got, optionflags):
        got = re.sub(r"TensorShape\(\[(.*?)\]\)", _as_tuple, got)
        return super().check_output(want, got, optionflags)


def _as_tuple(match):
    sizes = [int(size) for size in match[1].split(",") if size]
    return repr(tuple(sizes))


def test_examples_are_found():
    assert len(MODULES) >= 14


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    module = importlib.import_module(name)
    names = {
        "keras": keras,
        "AttentionalLSTM": AttentionalLSTM,
        "SequenceToSequence": SequenceToSequence,
        "SimpleLSTM": SimpleLSTM,
        "Transformer": Transformer,
        "TransformerConfig": TransformerConfig,
        **{
            key: value
            for key, value in vars(layers).items()
            if key[0].isupper()
        },
    }
    tests = [
        test
        for test in doctest.DocTestFinder().find(module, extraglobs=names)
        if test.examples
    ]
    assert tests
    runner = doctest.DocTestRunner(checker=ShapeChecker())
    report = []
    for test in tests:
        runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)
