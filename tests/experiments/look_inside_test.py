"""The commands that look inside a model."""

import json

import pytest

from tests.conftest import MODULE
from tests.experiments.command import assert_refused
from tpt_keras.models import SequenceToSequence
from tpt_keras.models import Transformer
from tpt_keras.models.load_model import load_model

OF_MODULES = ("kept_variance", "reconstruct", "roles")
TINY = {
    "hidden_dim": 16,
    "intermediate_dim": 16,
    "num_heads": 2,
    "num_layers": 1,
}


@pytest.fixture
def look(run, trained_model_dir, place_value_data, tmp_path):
    """Runs a command on some problems of the module."""

    def look(name, *arguments, model_dir=trained_model_dir):
        return run(
            name,
            f"--model_dir={model_dir}",
            f"--modules={MODULE}",
            f"--data_dir={place_value_data}",
            f"--output_dir={tmp_path / 'output'}",
            *arguments,
        )

    return look


def read(folder, name):
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    return json.loads((folder / f"{name}.json").read_text())


def test_roles(look, tmp_path):
    result = look("roles", "--count=8", "--clusters=3", "--head=2")
    assert (result.status, result.stderr) == (0, "")
    path = tmp_path / "output" / "roles.html"
    assert result.stdout.endswith(f"{path}\n")
    left = read(tmp_path / "output", "roles")
    assert (left["of"], left["layer"], left["head"]) == ("roles", 1, 2)
    assert [each["cluster"] for each in left["clusters"]] == [0, 1, 2]
    assert [len(row) for row in left["labels"]] == [
        len(text) for text in left["texts"]
    ]
    assert len(left["texts"]) == 8
    assert left["mutual_information"]["part_of_fraction"] is None
    assert left["texts"][0] in path.read_text().replace("\\u22a2", "⊢").replace(
        "\\u22a3", "⊣"
    )


def test_values_of_a_model_without_roles(look, tmp_path):
    Transformer.from_preset("transformer", **TINY).save(
        tmp_path / "model.keras"
    )
    arguments = ("--count=4", "--clusters=2", "--attention=cross")
    result = look("roles", *arguments, model_dir=tmp_path)
    assert (result.status, result.stderr) == (0, "")
    assert read(tmp_path / "output", "roles")["of"] == "values"
    result = look("roles", *arguments, "--of=roles", model_dir=tmp_path)
    assert_refused(result, "'none'", "--of=values")


@pytest.mark.slow
def test_attention(run, tmp_path, trained_model_dir):
    questions = ["What is the tens digit of 31859?", "7/8"]
    (tmp_path / "questions.txt").write_text("\n\n".join(questions))
    result = run(
        "attention",
        f"--model_dir={trained_model_dir}",
        f"--questions_file={tmp_path / 'questions.txt'}",
        f"--output_dir={tmp_path}",
        "--attention=cross",
    )
    assert (result.status, result.stderr) == (0, "")
    page = tmp_path / "attention.html"
    assert result.stdout == f"{page}\n"
    problems = json.loads((tmp_path / "attention.json").read_text())
    assert [problem["question"] for problem in problems] == questions
    answers = load_model(trained_model_dir).solve(questions)
    assert [problem["answer"] for problem in problems] == answers
    assert json.dumps(problems) in page.read_text()
    for number in (1, 2):
        content = (tmp_path / f"question_{number}.png").read_bytes()
        assert content.startswith(b"\x89PNG")


def test_reconstruct(look, tmp_path):
    result = look("reconstruct", "--count=8", "--train_cells=20,100")
    assert (result.status, result.stderr) == (0, "")
    results = read(tmp_path / "output", "reconstruction")
    assert [each["train_cells"] for each in results] == [20, 100]
    [layer] = results[1]["layers"]
    assert len(layer["held_out"]) == 2
    assert 0 < layer["train"][0] < layer["held_out"][0] < layer["variance"]
    assert len(result.stdout.splitlines()) == 5


def test_kept_variance(look, tmp_path):
    result = look("kept_variance", "--count=8", "--train_cells=100")
    assert (result.status, result.stderr) == (0, "")
    [heads] = read(tmp_path / "output", "kept_variance")["layers"]
    for head in heads:
        assert 0 < head["diagonal"] <= 1
        assert 0 < head["rotated"] <= head["principal"] <= 1
    assert result.stdout.startswith("layer 1, mean over its heads: as it is ")


def test_binding_problem(run):
    result = run("binding_problem")
    assert (result.status, result.stderr) == (0, "")
    distances = {
        line.split()[0]: float(line.split()[1])
        for line in result.stdout.splitlines()[1:5]
    }
    assert distances.pop("none") < 1e-5
    assert min(distances.values()) > 0.1


@pytest.mark.parametrize(
    ("name", "arguments", "parts"),
    [
        ("roles", ["--layer=2"], ["no layer 2", "--layer"]),
        ("roles", ["--clusters=1"], ["--clusters"]),
        ("roles", ["--count=1", "--clusters=99"], ["--count", "--clusters"]),
        ("roles", ["--of=keys"], ["'keys'", "roles, values"]),
        ("roles", ["--attention=self"], ["'self'", "cross, decoder"]),
        ("reconstruct", ["--train_cells=some"], ["--train_cells", "'some'"]),
        ("reconstruct", ["--count=2"], ["--count", "--train_cells"]),
        ("kept_variance", ["--train_cells=1"], ["--train_cells"]),
        ("kept_variance", ["--count=0"], ["--count"]),
    ],
)
def test_refused(look, tmp_path, name, arguments, parts):
    assert_refused(look(name, *arguments), *parts)
    assert not (tmp_path / "output").exists()


def test_questions_that_are_none(run, tmp_path, trained_model_dir):
    path = tmp_path / "questions.txt"
    command = (
        "attention",
        f"--model_dir={trained_model_dir}",
        f"--questions_file={path}",
        f"--output_dir={tmp_path / 'output'}",
    )
    assert_refused(run(*command), path, "no file")
    path.write_bytes(b"\xff")
    assert_refused(run(*command), path, "UTF-8")
    path.write_text("\n")
    assert_refused(run(*command), path, "0 questions")
    path.write_text("1%2")
    assert_refused(run(*command), "'%'")
    path.write_text("1")
    assert_refused(run(*command, "--head=3"), "head 3")


def test_nothing_to_look_at(look, tmp_path):
    SequenceToSequence.from_preset("lstm", hidden_dim=8).save(
        tmp_path / "model.keras"
    )
    assert_refused(look("roles", model_dir=tmp_path), "SimpleLSTM")


@pytest.mark.parametrize("name", [*OF_MODULES, "attention"])
def test_nothing_given(run, name):
    assert_refused(run(name), "--model_dir")
