"""A compressed model, in the place of the folder that it was trained in."""

import json

import pytest

from tests.conftest import MODULE
from tests.experiments.command import assert_refused
from tpt_keras.models.load_model import load_model

QUESTIONS = ["What is the tens digit of 31859?", "What is 1 + 1?"]


@pytest.fixture(scope="module")
def folders(trained_model_dir, tmp_path_factory):
    return trained_model_dir, tmp_path_factory.mktemp("models") / "compressed"


@pytest.fixture
def compressed_dir(run, folders):
    model_dir, compressed_dir = folders
    if not compressed_dir.exists():
        result = run(
            "compress",
            f"--model_dir={model_dir}",
            f"--compressed_dir={compressed_dir}",
        )
        assert (result.status, result.stderr) == (0, "")
        num_bytes = (compressed_dir / "model.int8.safetensors").stat().st_size
        assert f" weights in {num_bytes:,} bytes\n" in result.stdout
    return compressed_dir


def test_what_is_left(compressed_dir, folders):
    names = {path.name for path in compressed_dir.iterdir()}
    assert names == {"config.json", "model.int8.safetensors"}
    left, trained = (
        json.loads((folder / "config.json").read_text())
        for folder in (compressed_dir, folders[0])
    )
    assert left == trained
    config = load_model(folders[0]).config
    assert load_model(compressed_dir).config == config


@pytest.mark.slow
def test_asked(run, compressed_dir):
    result = run(
        "solve",
        f"--model_dir={compressed_dir}",
        *(f"--question={question}" for question in QUESTIONS),
    )
    assert (result.status, result.stderr) == (0, "")
    answers = load_model(compressed_dir).solve(QUESTIONS)
    assert result.stdout.splitlines() == answers


@pytest.mark.slow
def test_quizzed(run, compressed_dir, place_value_data):
    result = run(
        "quiz",
        f"--model_dir={compressed_dir}",
        f"--modules={MODULE}",
        f"--data_dir={place_value_data}",
        "--count=20",
    )
    assert (result.status, result.stderr) == (0, "")
    *lines, count = result.stdout.splitlines()
    assert len(lines) == 40
    questions, marks = lines[::2], lines[1::2]
    answers = [
        line.removeprefix("    answer: ").partition("target:")[0].strip()
        for line in marks
    ]
    assert answers == load_model(compressed_dir).solve(questions)
    num_right = sum(line.endswith(" right") for line in marks)
    assert count == f"{num_right} of 20 answers right"


@pytest.mark.slow
def test_evaluated(run, compressed_dir):
    result = run("evaluate", f"--model_dir={compressed_dir}")
    assert (result.status, result.stderr) == (0, "")
    rows = json.loads((compressed_dir / "evaluation.json").read_text())
    assert [row["examples"] for row in rows] == [60, 60]


@pytest.mark.parametrize("name", ["solve", "quiz"])
def test_two_models_or_none(run, name):
    for models in ([], ["--saved_model=a", "--model_dir=b"]):
        asked = ("--question=1", f"--modules={MODULE}")[name == "quiz"]
        assert_refused(
            run(name, asked, *models), "--saved_model", "--model_dir"
        )


def test_refused(run, tmp_path, folders):
    assert_refused(run("compress"), "--model_dir", "--compressed_dir")
    model_dir = folders[0]
    assert_refused(
        run(
            "compress",
            f"--model_dir={model_dir}",
            f"--compressed_dir={model_dir}",
        ),
        "model.keras",
    )
    assert_refused(
        run(
            "compress",
            f"--model_dir={tmp_path / 'none'}",
            f"--compressed_dir={tmp_path}",
        ),
        "none",
    )


def test_a_damaged_one(run, compressed_dir, tmp_path):
    content = bytearray(
        (compressed_dir / "model.int8.safetensors").read_bytes()
    )
    content[len(content) // 2] ^= 0x04
    (tmp_path / "model.int8.safetensors").write_bytes(content)
    for name, *arguments in (
        ("solve", "--question=1"),
        ("export", f"--export_dir={tmp_path / 'exported'}"),
    ):
        result = run(name, f"--model_dir={tmp_path}", *arguments)
        assert_refused(result, tmp_path)
