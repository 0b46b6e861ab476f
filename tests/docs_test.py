"""README, the guides and the examples in docstrings are true and run."""

import contextlib
import doctest
import importlib
import pathlib
import re

import keras
import numpy as np
import pytest

import tpt_keras
from tpt_keras import layers
from tpt_keras import models
from tpt_keras.layers import BINDINGS
from tpt_keras.layers import MECHANISMS
from tpt_keras.layers.base_layer import option_defaults

PACKAGE = pathlib.Path(tpt_keras.__file__).parent
ROOT = PACKAGE.parent
DOCS = ROOT / "docs"
PURE = "analysis", "layers", "models", "decoding", "tokenizers", "visualization"
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in PURE
    for path in (PACKAGE / folder).rglob("*.py")
    if ">>>" in path.read_text()
)


def blocks(page, section=""):
    """The code below a heading of a page, up to the next one."""
    text = (ROOT / page).read_text()
    if section:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def run(code):
    """The names that code leaves."""
    names = {}
    exec(compile(code, "a page", "exec"), names)
    return names


def test_every_block_of_readme_is_run_by_a_test():
    titles = "TP-Attention in your own model", "Ask the trained solver"
    tested = [code for title in titles for code in blocks("README.md", title)]
    assert tested == blocks("README.md")


@pytest.mark.slow
def test_readme_asks_the_trained_solver():
    [code] = blocks("README.md", "Ask the trained solver")
    beside = re.findall(r'", +# (.*)', code)
    assert len(beside) == 5
    assert run(code)["answers"] == beside


def test_readmes_own_model_learns_and_does_not_see_padding():
    [code] = blocks("README.md", "TP-Attention in your own model")
    model = run(code)["model"]
    ids = np.array([[5, 8, 13], [21, 34, 55]])
    expected = model.predict(ids, verbose=0)
    # Nor what stands for it: its row of the embedding.
    embedding = model.layers[1]
    matrix = embedding.get_weights()[0]
    matrix[0] += 3.0
    embedding.set_weights([matrix])
    padded = np.pad(ids, [(0, 0), (0, 4)])
    np.testing.assert_allclose(
        model.predict(padded, verbose=0), expected, atol=1e-6
    )
    ids = np.random.default_rng(5).integers(1, 1000, (32, 6))
    history = model.fit(ids, ids[:, 0] % 2, epochs=3, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]


@pytest.mark.parametrize("parts", [MECHANISMS, BINDINGS])
def test_options_are_listed_with_their_defaults(parts):
    text = (DOCS / "variants.md").read_text()
    section = text.partition("## Options")[2].partition("## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*)\|$", section, re.MULTILINE))
    for name, part in parts.items():
        inherited = option_defaults(part.__mro__[1])
        listed = dict(re.findall(r"`(\w+)=(\S+)`", rows[name]))
        assert listed == {
            option: repr(default)
            for option, default in option_defaults(part).items()
            if option not in inherited
        }


def test_looking_inside_from_python(capsys):
    binding, activations = blocks("docs/look_inside.md")
    run(binding)
    distance, norm = capsys.readouterr().out.split()
    assert (round(float(distance), 1), round(float(norm), 1)) == (6.2, 9.1)
    names = run(activations)
    length = len("What is 7/8 of a litre in millilitres?") + 2
    assert names["weights"].shape == (1, 4, length, length)
    assert names["roles"].shape == (1, length, 4, 32)


def run_smaller(page, section, changes, folder, data):
    """Runs a block as it stands there, with fewer steps and problems."""
    [code] = blocks(page, section)
    for before, after in changes.items():
        assert code.count(before) == 1
        code = code.replace(before, after)
    (folder / "data").symlink_to(data)
    with contextlib.chdir(folder):
        return run(code)


@pytest.mark.slow
def test_training_from_python(tmp_path, place_value_data, capsys):
    changes = {
        "train_steps=1000": "train_steps=4",
        "warmup_steps=100": "warmup_steps=2",
        "batch_size=128": "batch_size=16, validation_examples=20",
    }
    page = "docs/training.md", "From Python"
    run_smaller(*page, changes, tmp_path, place_value_data)
    score, step, loss = capsys.readouterr().out.splitlines()[-2].split()
    assert 0.0 <= float(score) <= 1.0
    assert int(step) == 4
    assert float(loss) > 0.0
    assert (tmp_path / "models/place_value/model.keras").is_file()


@pytest.mark.slow
def test_tuning_in_a_notebook(tmp_path, place_value_data, without_graphs):
    changes = {
        "SearchSpace()": "SearchSpace(min_weights=9000, max_weights=10000)",
        "batch_size=128": "batch_size=16, validation_examples=20",
        "steps_per_epoch=100": "steps_per_epoch=2",
        "epochs=5": "epochs=1",
        "max_trials=8": "max_trials=2",
    }
    page = "docs/tuning.md", "In a notebook"
    names = run_smaller(*page, changes, tmp_path, place_value_data)
    trials = names["tuner"].oracle.trials.values()
    assert [trial.status for trial in trials] == ["COMPLETED"] * 2
    assert all(0.0 <= trial.score <= 1.0 for trial in trials)


class ShapeChecker(doctest.OutputChecker):
    """Takes TensorFlow's way to write a shape for the tuple that it is."""

    def check_output(self, want, got, optionflags):
        got = re.sub(r"TensorShape\(\[(.*?)\]\)", r"(\1)", got)
        return super().check_output(want, got, optionflags)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    module = importlib.import_module(name)
    names = {"keras": keras} | {
        key: value
        for public in (layers, models)
        for key, value in vars(public).items()
        if key[0].isupper()
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
