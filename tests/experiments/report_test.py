import json

import pytest

from tests.conftest import MODULE
from tests.experiments.command import assert_refused
from tpt_keras.decoding import Generator
from tpt_keras.models import Transformer
from tpt_keras.training.evaluate import evaluate
from tpt_keras.training.transformer_trainer import TransformerTrainer

SPLITS = ["train", "interpolate", "extrapolate"]


@pytest.fixture
def other_model_dir(tmp_path):
    """A folder of a model alone, which takes short questions only."""
    folder = tmp_path / "other"
    folder.mkdir()
    save_model(folder)
    return folder


def save_model(folder):
    Transformer.from_preset(
        "tp_transformer_tiny",
        **{"hidden_dim": 8, "num_heads": 1, "num_layers": 1},
        max_question_length=42,
    ).save(folder / "model.keras")


@pytest.mark.slow
def test_report(
    run,
    monkeypatch,
    tmp_path,
    trained_model_dir,
    other_model_dir,
    trained_model,
):
    data_dir = json.loads((trained_model_dir / "config.json").read_text())[
        "training"
    ]["data"]["data_dir"]
    page = tmp_path / "written" / "report.html"

    def report(*arguments):
        return run(
            "report",
            f"--model_dirs={trained_model_dir},{other_model_dir}",
            f"--modules={MODULE}",
            f"--data_dir={data_dir}",
            f"--splits={','.join(SPLITS)}",
            f"--output={page}",
            *arguments,
        )

    result = report()
    assert (result.status, result.stderr) == (0, "")
    assert result.stdout.count(" answers right\n") == 6
    assert result.stdout.endswith(f"{page}\n")
    left = json.loads(page.with_suffix(".json").read_text())
    first, other = left["models"]
    assert (first["step"], other["step"]) == (60, None)
    assert first["weights"] == trained_model.count_params()
    # It is the accuracy that an evaluation gives.
    trainer = TransformerTrainer(trained_model)
    trainer.compile(jit_compile=False)
    for row in evaluate(
        trainer, [MODULE], SPLITS[1:], data_dir, max_examples=100
    ):
        reported = first["splits"][row["split"]]["of_modules"][MODULE]
        assert reported["examples"] == row["examples"] == 60
        assert reported["accuracy"] == pytest.approx(row["sequence_accuracy"])
    assert 0.0 < first["splits"]["train"]["accuracy"] < 1.0
    unread = other["splits"]["interpolate"]["unread"]
    assert 0 < unread < 60
    text = page.with_suffix(".md").read_text()
    assert f"other cannot read {unread} of the 60 questions" in " ".join(
        text.split()
    )
    assert "TP-Transformer (published: " in text
    for split in SPLITS:
        picture = page.with_name(f"report_{split}.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
    assert "shorten it to" in page.read_text()

    # What is there is not computed again, even of fewer problems.
    def computed(*_):
        raise AssertionError

    monkeypatch.setattr(Generator, "generate_on_batch", computed)
    assert report().status == 0
    assert json.loads(page.with_suffix(".json").read_text()) == left
    assert report("--examples=20", "--splits=train").status == 0
    fewer = json.loads(page.with_suffix(".json").read_text())["models"][0]
    assert fewer["splits"]["train"]["examples"] == 20
    # But of another model, all is.
    save_model(other_model_dir)
    with pytest.raises(AssertionError):
        report()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--model_dirs="], ["--model_dirs"]),
        (["--splits="], ["--splits"]),
        (["--splits=train,tests"], ["--splits", "'tests'", "interpolate"]),
        (["--examples=0"], ["--examples"]),
        (["--batch_size=0"], ["--batch_size"]),
        (["--output=report.pdf"], ["--output", "'report.pdf'", ".html"]),
        (["--dataset=mine"], ["--dataset", "'mine'"]),
        (["--modules=numbers__no"], ["'numbers__no'"]),
        ([], ["--modules"]),
        ([f"--modules={MODULE}"], ["--data_dir"]),
        ([f"--modules={MODULE}", "--data_dir=/nowhere"], ["'/nowhere'"]),
    ],
)
def test_refused(run, tmp_path, arguments, parts):
    result = run("report", f"--model_dirs={tmp_path / 'model'}", *arguments)
    assert_refused(result, *parts)


def test_trainings_of_several_modules(run, tmp_path):
    for module in ("numbers__gcd", "numbers__lcm"):
        (tmp_path / module).mkdir()
        (tmp_path / module / "config.json").write_text(
            json.dumps({"training": {"data": {"modules": [module]}}})
        )
    folders = f"{tmp_path}/numbers__gcd,{tmp_path}/numbers__lcm"
    result = run("report", f"--model_dirs={folders}")
    assert_refused(result, "several modules", "--modules")


def test_a_model_that_is_not_there(run, tmp_path, place_value_data):
    result = run(
        "report",
        f"--model_dirs={tmp_path / 'nothing'}",
        f"--modules={MODULE}",
        f"--data_dir={place_value_data}",
        f"--output={tmp_path / 'report.html'}",
    )
    assert_refused(result, tmp_path / "nothing")
    assert list(tmp_path.iterdir()) == []
