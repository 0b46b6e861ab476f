import pathlib
import re

import pytest

import tpt_keras
from tpt_keras.layers import BINDINGS
from tpt_keras.layers import MECHANISMS
from tpt_keras.layers.base_layer import option_defaults

DOCS = pathlib.Path(tpt_keras.__file__).parents[1] / "docs"


def test_every_figure_is_shown_with_a_command():
    shown = set()
    for page in DOCS.glob("*.md"):
        for section in page.read_text().split("\n## "):
            if "```sh" in section:
                shown |= set(re.findall(r"\((\w+\.png)\)", section))
    assert shown == {path.name for path in DOCS.glob("*.png")}


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
    text = (DOCS / "look_inside.md").read_text()
    binding, activations = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(binding, {})
    distance, norm = capsys.readouterr().out.split()
    assert (round(float(distance), 1), round(float(norm), 1)) == (6.2, 9.1)
    names = {}
    exec(activations, names)
    length = len("What is 7/8 of a litre in millilitres?") + 2
    assert names["weights"].shape == (1, 4, length, length)
    assert names["roles"].shape == (1, length, 4, 32)


PAGES = [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_the_extras_of_its_commands(page):
    text = page.read_text()
    code = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    named = ",".join(re.findall(r"pip install \"\.\[(.*?)\]", text)).split(",")
    for name in set(re.findall(r"(?:experiments\.|tpt_keras )(\w+) ", code)):
        source = (DOCS.parent / "experiments" / f"{name}.py").read_text()
        extras = re.findall(r"require\([^)]*\"(\w+)\"\)", source)
        # One of them: an export's depends on its format.
        if extras and name != "prepare_data":
            assert set(extras) & set(named), name


@pytest.mark.slow
def test_training_from_python(tmp_path, monkeypatch, place_value_data, capsys):
    text = (DOCS / "training.md").read_text()
    section = text.partition("## From Python")[2]
    [code] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    # As it stands there, with fewer steps and problems.
    for name, value in (
        ("train_steps", 4),
        ("warmup_steps", 2),
        ("batch_size", "16, validation_examples=20"),
    ):
        code, count = re.subn(rf"\b{name}=\d+", f"{name}={value}", code)
        assert count == 1
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").symlink_to(place_value_data)
    exec(code, {})
    score, step, loss = capsys.readouterr().out.splitlines()[-2].split()
    assert 0.0 <= float(score) <= 1.0
    assert int(step) == 4
    assert float(loss) > 0.0
    assert (tmp_path / "models/place_value/model.keras").is_file()


@pytest.mark.slow
def test_tuning_in_a_notebook(
    tmp_path, monkeypatch, place_value_data, without_graphs
):
    text = (DOCS / "tuning.md").read_text()
    section = text.partition("## In a notebook")[2]
    [code] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    # As it stands there, smaller.
    for before, after in (
        ("SearchSpace()", "SearchSpace(min_weights=9000, max_weights=10000)"),
        ("batch_size=128", "batch_size=16, validation_examples=20"),
        ("steps_per_epoch=100", "steps_per_epoch=2"),
        ("epochs=5", "epochs=1"),
        ("max_trials=8", "max_trials=2"),
    ):
        assert code.count(before) == 1
        code = code.replace(before, after)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").symlink_to(place_value_data)
    names = {}
    exec(code, names)
    trials = names["tuner"].oracle.trials.values()
    assert [trial.status for trial in trials] == ["COMPLETED"] * 2
    assert all(0.0 <= trial.score <= 1.0 for trial in trials)
