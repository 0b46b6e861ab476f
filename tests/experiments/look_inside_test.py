"""The commands that analyse a model."""

import json
import sys

import pytest

from tests.conftest import MODULE
from tests.experiments.command import assert_refused
from tests.training.trainings import write_config
from tpt_keras.analysis.report import short_names
from tpt_keras.analysis.report import times_to
from tpt_keras.analysis.report import training_curves
from tpt_keras.models import SequenceToSequence

TRAINED = "tp_transformer_mathematics"
TINY = {
    "hidden_dim": 16,
    "intermediate_dim": 16,
    "num_heads": 2,
    "num_layers": 1,
    "max_answer_length": 2,
}

pytestmark = pytest.mark.usefixtures("without_graphs")


def make_model(folder, preset="tp_transformer_tiny", **fields):
    """Saves an untrained model, and returns its folder."""
    model = SequenceToSequence.from_preset(preset, **fields)
    model.save(folder / "model.keras")
    return folder


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model"), **TINY)


@pytest.fixture
def output(tmp_path):
    return tmp_path / "output"


@pytest.fixture
def look(run, model_dir, place_value_data, output):
    """Function that runs a command on problems of the module."""

    def look(name, *arguments, model_dir=model_dir):
        data = (f"--modules={MODULE}", f"--data_dir={place_value_data}")
        folders = (f"--model={model_dir}", f"--output_dir={output}")
        if name == "attention":  # it takes questions
            data = ()
        return run(name, *folders, *data, *arguments)

    return look


def read(folder, name):
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    return json.loads((folder / f"{name}.json").read_text())


def test_roles_are_clustered_and_drawn(look, output):
    result = look("roles", "--count=8", "--clusters=3", "--head=2").quiet()
    path = output / "roles.html"
    assert result.stdout.endswith(f"{path}\n")
    found = read(output, "roles")
    assert (found["of"], found["layer"], found["head"]) == ("roles", 1, 2)
    assert [each["cluster"] for each in found["clusters"]] == [0, 1, 2]
    assert list(map(len, found["labels"])) == list(map(len, found["texts"]))
    assert len(found["texts"]) == 8
    assert found["mutual_information"]["part of a fraction"] is None
    assert found["texts"][0].strip("⊢⊣") in path.read_text()


def test_problems_and_title_are_those_of_the_training(run, tmp_path, output):
    make_model(tmp_path, **TINY)
    pairs = [f"{n}+1\t{n + 1}\n" for n in range(60)]
    (tmp_path / "sums.tsv").write_text("".join(["question\tanswer\n", *pairs]))
    fields = {"dataset": "text_pairs", "data_dir": str(tmp_path)}
    write_config(tmp_path, modules=["sums"], **fields)
    flags = (f"--model={tmp_path}", f"--output_dir={output}")
    run("roles", *flags, "--clusters=2").quiet()
    assert "Roles of text_pairs:" in (output / "roles.html").read_text()


def test_values_of_a_model_without_roles_are_clustered(look, tmp_path, output):
    make_model(tmp_path, "transformer", **TINY)
    arguments = ("--count=4", "--clusters=2", "--attention=cross")
    look("roles", *arguments, model_dir=tmp_path).quiet()
    assert read(output, "roles")["of"] == "values"
    result = look("roles", *arguments, "--of=roles", model_dir=tmp_path)
    assert_refused(result, "--of")


def test_attention_is_drawn_for_every_question(look, output):
    questions = ["What is the tens digit of 31859?", "7/8"]
    asked = [f"--question={question}" for question in (*questions, "1%2")]
    result = look("attention", *asked, "--attention=cross")
    assert "'1%2'" in result.stderr
    page = output / "attention.html"
    assert (result.status, result.stdout) == (0, f"{page}\n")
    problems = json.loads(page.with_suffix(".json").read_text())
    assert [problem["question"] for problem in problems] == questions
    # An answer of this untrained model may have the character.
    assert json.dumps(problems).replace("<", "\\u003c") in page.read_text()
    for number in (1, 2):
        content = page.with_name(f"question_{number}.png").read_bytes()
        assert content.startswith(b"\x89PNG")


def test_unreadable_problems_are_left_out(look, tmp_path):
    make_model(tmp_path, **TINY, max_question_length=42)
    arguments = ("--count=60", "--train_characters=20")
    result = look("representations", *arguments, model_dir=tmp_path).succeeded()
    assert result.stderr.startswith("Left out: ")
    assert result.stderr.count("\n") == 1


def test_errors_of_reconstruction_are_written_and_drawn(look, output):
    sizes = ("--train_characters=20", "--train_characters=100")
    result = look("representations", "--count=8", *sizes).quiet()
    found = read(output, "reconstruction")
    # So few characters are fitted too well.
    [train], [held_out] = (
        found[f"{name}, fitted on 20"] for name in ("train", "held out")
    )
    assert len(train) == len(held_out) == 2
    assert 0 < train[0] < held_out[0]
    assert found["held out, fitted on 100"][0][0] < held_out[0]
    assert len(found) == 4
    assert len(result.stdout.splitlines()) == 5


def test_kept_variance_is_written_and_drawn(look, output):
    arguments = ("--measure=kept_variance", "--train_characters=100")
    look("representations", "--count=8", *arguments).quiet()
    found = read(output, "kept_variance")
    for diagonal, rotated, principal in zip(*(t[0] for t in found.values())):
        assert 0 < diagonal <= 1
        assert 0 < rotated <= principal <= 1


@pytest.mark.parametrize(
    ("name", "arguments", "parts"),
    [
        ("roles", ["--layer=2"], ["--layer"]),
        # The first size would be possible.
        (
            "representations",
            ["--count=2", "--train_characters=20", "--train_characters=4000"],
            ["tokens", "4000"],
        ),
        ("attention", ["--question=1%2"], ["'1%2'"]),
    ],
)
def test_refused(look, output, name, arguments, parts):
    assert_refused(look(name, *arguments), *parts)
    assert not output.exists()


@pytest.mark.parametrize(
    ("name", "package", "arguments"),
    [
        ("attention", "matplotlib", ["--model=/", "--question=1"]),
        ("report", "matplotlib", ["--models=/"]),
        ("tune", "sklearn", ["--tuning_dir=/", "--tuner=bayesian"]),
    ],
)
def test_a_missing_package_is_the_first_complaint(
    run, monkeypatch, name, package, arguments
):
    monkeypatch.setitem(sys.modules, package, None)
    result = run(name, *arguments)
    assert_refused(result, package, "tpt_keras[analysis]")


def write_training(folder, rows, **fields):
    """Writes a training's configuration and metrics; returns the folder."""
    folder.mkdir()
    write_config(folder, **fields)
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows)
    )
    return str(folder)


def test_curves_are_means_over_seeds_by_examples_and_minutes(tmp_path):
    metric = "interpolate_sequence_accuracy"
    without = tmp_path / "without the metric"
    folders = [write_training(without, [{"step": 1}], modules=["m"])]
    for seed in range(2):
        rows = [
            {"step": 10, "minutes": 1.0 + seed, metric: 0.3, "loss": 1.0},
            {"step": 20, "minutes": 3.0 + seed, metric: 0.5 + 0.2 * seed},
            {"step": 21 + seed, "minutes": 5.0, metric: 0.9},
            {"step": 30, "minutes": 5.0, "loss": 0.5},
        ]
        config = {"seed": seed, "modules": ["m"], "batch_size": 8}
        folders.append(write_training(tmp_path / str(seed), rows, **config))
    curves = training_curves(short_names(folders), metric)
    [(name, rows)] = curves.items()
    assert name == "0, mean of 2 seeds"
    assert rows == [
        {"step": 10, "examples": 80, "minutes": 1.5, metric: 0.3},
        {"step": 20, "examples": 160, "minutes": 3.5, metric: 0.6},
        # The last evaluations, of trainings that end by the clock.
        {"step": 21.5, "examples": 172, "minutes": 5.0, metric: 0.9},
    ]
    first = [each["row"] for each in times_to((0.2, 0.6, 0.95), curves, metric)]
    assert first == [rows[0], rows[1], None]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["a/one", "a/two"], ["one", "two"]),
        (["/a/b/one", "/a/c/one", "/a/two"], ["b/one", "c/one", "two"]),
        (["a/b/one", "a/b/../two"], ["b/one", "two"]),
        (["a/one"], ["one"]),
        (["hf://user/one", "a/two"], ["hf://user/one", "two"]),
        # A trained preset and a folder with its name.
        ([TRAINED, f"a/{TRAINED}"], [TRAINED, f"a/{TRAINED}"]),
    ],
)
def test_names_are_short_and_differ(paths, names):
    assert list(short_names(paths).values()) == names
