"""The commands that analyse a model."""

import json
import socket
import sys

import pytest

from tests.conftest import MODULE
from tests.experiments.command import assert_refused
from tpt_keras.models import SequenceToSequence
from tpt_keras.models import Transformer
from tpt_keras.models.load_model import load_model

OF_PROBLEMS = ("kept_variance", "reconstruct", "roles")
TINY = {
    "hidden_dim": 16,
    "intermediate_dim": 16,
    "num_heads": 2,
    "num_layers": 1,
}


@pytest.fixture
def look(run, trained_model_dir, place_value_data, tmp_path):
    """Function that runs a command on problems of the module."""

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


def test_roles_are_clustered_and_drawn(look, tmp_path):
    result = look("roles", "--count=8", "--clusters=3", "--head=2")
    assert (result.status, result.stderr) == (0, "")
    path = tmp_path / "output" / "roles.html"
    assert result.stdout.endswith(f"{path}\n")
    output = read(tmp_path / "output", "roles")
    assert (output["of"], output["layer"], output["head"]) == ("roles", 1, 2)
    assert [each["cluster"] for each in output["clusters"]] == [0, 1, 2]
    assert list(map(len, output["labels"])) == list(map(len, output["texts"]))
    assert len(output["texts"]) == 8
    assert output["mutual_information"]["part_of_fraction"] is None
    assert output["texts"][0].strip("⊢⊣") in path.read_text()


def test_values_of_a_model_without_roles_are_clustered(look, tmp_path):
    Transformer.from_preset("transformer", **TINY).save(
        tmp_path / "model.keras"
    )
    arguments = ("--count=4", "--clusters=2", "--attention=cross")
    result = look("roles", *arguments, model_dir=tmp_path)
    assert (result.status, result.stderr) == (0, "")
    assert read(tmp_path / "output", "roles")["of"] == "values"
    result = look("roles", *arguments, "--of=roles", model_dir=tmp_path)
    assert_refused(result, "NoBinding", "--of=values")


@pytest.fixture
def attend(run, trained_model_dir, tmp_path):
    """Function that runs `attention` on a file of questions."""

    def attend(questions, *arguments):
        path = tmp_path / "questions.txt"
        path.write_bytes(questions)
        return run(
            "attention",
            f"--model_dir={trained_model_dir}",
            f"--questions_file={path}",
            f"--output_dir={tmp_path / 'output'}",
            *arguments,
        )

    return attend


@pytest.mark.slow
def test_attention_leaves_out_unreadable_questions(
    attend, tmp_path, trained_model_dir
):
    questions = ["What is the tens digit of 31859?", "7/8"]
    unreadable = ["1%2", "1" * 200]
    lines = "\n\n".join([unreadable[0], *questions, unreadable[1]])
    result = attend(lines.encode(), "--attention=cross")
    page = tmp_path / "output" / "attention.html"
    assert (result.status, result.stdout) == (0, f"{page}\n")
    assert all(question[:40] in result.stderr for question in unreadable)
    assert result.stderr.count("\n") == 1
    problems = json.loads(page.with_suffix(".json").read_text())
    assert [problem["question"] for problem in problems] == questions
    answers = load_model(trained_model_dir).solve(questions)
    assert [problem["answer"] for problem in problems] == answers
    assert json.dumps(problems) in page.read_text()
    for number in (1, 2):
        content = page.with_name(f"question_{number}.png").read_bytes()
        assert content.startswith(b"\x89PNG")


@pytest.mark.slow
def test_attention_takes_the_packages_questions_by_default(
    run, trained_model_dir, tmp_path
):
    folder = f"--model_dir={trained_model_dir}"
    result = run("attention", folder, f"--output_dir={tmp_path}")
    assert (result.status, result.stderr) == (0, "")
    assert (tmp_path / "question_5.png").exists()


@pytest.mark.parametrize(
    ("questions", "arguments", "parts"),
    [
        (b"\xff", [], ["questions.txt", "UTF-8"]),
        (b"\n", [], ["questions.txt", "0 questions"]),
        (b"1%2", [], ["'1%2'"]),
        (b"1", ["--head=3"], ["--head"]),
        (b"1", ["--attention=self"], ["--attention"]),
        (b"1", ["--questions_file=/nothing"], ["'/nothing'"]),
    ],
)
def test_attention_refuses(attend, tmp_path, questions, arguments, parts):
    assert_refused(attend(questions, *arguments), *parts)
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize("name", OF_PROBLEMS)
def test_unreadable_problems_are_left_out(look, tmp_path, name):
    Transformer.from_preset(
        "tp_transformer_tiny", **TINY, max_question_length=42
    ).save(tmp_path / "model.keras")
    arguments = ["--count=60"]
    if name != "roles":
        arguments.append("--train_characters=20")
    result = look(name, *arguments, model_dir=tmp_path)
    assert result.status == 0, result.stderr
    assert result.stderr.startswith("Left out ")
    assert result.stderr.count("\n") == 1


def test_reconstruction_errors_are_written_and_drawn(look, tmp_path):
    result = look("reconstruct", "--count=8", "--train_characters=20,100")
    assert (result.status, result.stderr) == (0, "")
    results = read(tmp_path / "output", "reconstruction")
    assert [each["train_characters"] for each in results] == [20, 100]
    [layer] = results[1]["layers"]
    assert len(layer["held_out"]) == 2
    assert 0 < layer["train"][0] < layer["held_out"][0] < layer["variance"]
    assert len(result.stdout.splitlines()) == 5


def test_kept_variance_is_written_and_drawn(look, tmp_path):
    result = look("kept_variance", "--count=8", "--train_characters=100")
    assert (result.status, result.stderr) == (0, "")
    [heads] = read(tmp_path / "output", "kept_variance")["layers"]
    for head in heads:
        assert 0 < head["diagonal"] <= 1
        assert 0 < head["rotated"] <= head["principal"] <= 1


def test_binding_problem_prints_distances(run):
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
        ("roles", ["--layer=2"], ["--layer"]),
        ("roles", ["--clusters=1"], ["--clusters"]),
        ("roles", ["--count=1", "--clusters=99"], ["clusters"]),
        ("roles", ["--of=keys"], ["--of"]),
        ("roles", ["--attention=self"], ["--attention"]),
        ("reconstruct", ["--train_characters=some"], ["--train_characters"]),
        ("kept_variance", ["--train_characters=1"], ["--train_characters"]),
        ("kept_variance", ["--count=0"], ["--count"]),
    ],
)
def test_refused(look, tmp_path, name, arguments, parts):
    assert_refused(look(name, *arguments), *parts)
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize("name", ["reconstruct", "kept_variance"])
def test_too_few_problems_are_refused_before_results(look, tmp_path, name):
    # The first size would be possible.
    sizes = "20,4000" if name == "reconstruct" else "4000"
    result = look(name, "--count=2", f"--train_characters={sizes}")
    assert_refused(result, "characters", "4000")
    assert not (tmp_path / "output").exists()


def test_a_model_without_attention_is_refused(look, tmp_path):
    SequenceToSequence.from_preset("lstm", hidden_dim=8).save(
        tmp_path / "model.keras"
    )
    assert_refused(look("roles", model_dir=tmp_path), "SimpleLSTM")


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("attention", "matplotlib"),
        ("kept_variance", "sklearn"),
        ("playground", "streamlit"),
        ("reconstruct", "sklearn"),
        ("roles", "matplotlib"),
        ("compare", "matplotlib"),
    ],
)
def test_a_missing_package_is_the_first_complaint(
    run, monkeypatch, name, package
):
    monkeypatch.setitem(sys.modules, package, None)
    folder = "--model_dirs" if name == "compare" else "--model_dir"
    arguments = [f"{folder}=/nothing"]
    if name in OF_PROBLEMS:
        arguments.append("--modules=none")
    extra = "playground" if name == "playground" else "analysis"
    assert_refused(run(name, *arguments), package, f"tpt_keras[{extra}]")


@pytest.mark.parametrize(
    ("name", "arguments", "flag"),
    [
        *((name, [], "--model_dir") for name in OF_PROBLEMS),
        *((name, ["--model_dir=/"], "--modules") for name in OF_PROBLEMS),
        ("attention", [], "--model_dir"),
        ("compare", [], "--model_dirs"),
        ("playground", [], "--model_dir"),
        ("playground", ["--model_dir=/", "--port=65536"], "--port"),
        ("playground", ["--model_dir=/", "--answers=0"], "--answers"),
        ("playground", ["--model_dir=/nothing"], "/nothing"),
    ],
)
def test_missing_and_wrong_flags_are_refused(run, name, arguments, flag):
    assert_refused(run(name, *arguments), flag)


@pytest.fixture
def training(tmp_path):
    """Function that writes a training's configuration and metrics."""

    def write(name, module, rows):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(
            json.dumps({"training": {"data": {"modules": [module]}}})
        )
        (folder / "metrics.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows)
        )
        return str(folder)

    return write


def test_compare_draws_trainings(run, tmp_path, training):
    row = {"step": 2, "val_sequence_accuracy": 0.5}
    folders = [training("one", "m", [row]), training("two", "n", [row])]
    path = tmp_path / "curves.png"
    result = run(
        "compare", f"--model_dirs={','.join(folders)}", f"--output={path}"
    )
    assert (result.status, result.stdout) == (0, f"{path}\n")
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        ([{"step": 1, "loss": 2.0}], ["val_sequence_accuracy", "loss"]),
        # The folder of a compressed model.
        ([], ["metrics.jsonl"]),
    ],
)
def test_compare_names_the_missing_log_or_metric(
    run, tmp_path, training, rows, parts
):
    folder = training("folder", "m", rows)
    path = tmp_path / "curves.png"
    result = run("compare", f"--model_dirs={folder}", f"--output={path}")
    assert_refused(result, folder, *parts)
    assert not path.exists()


def test_the_playground_refuses_a_taken_port(run):
    with socket.create_server(("localhost", 0)) as listener:
        port = listener.getsockname()[1]
        result = run("playground", "--model_dir=/", f"--port={port}")
    assert_refused(result, port, "--port")


def test_the_playground_starts_streamlit(run, monkeypatch, trained_model_dir):
    started = []
    monkeypatch.setattr("os.execv", lambda *command: started.append(command))
    result = run("playground", f"--model_dir={trained_model_dir}")
    assert (result.status, result.stderr) == (0, "")
    [(_, arguments)] = started
    assert "--server.address=localhost" in arguments
    assert arguments[-2:] == [str(trained_model_dir), "5"]
