import json

import pytest

from tests.conftest import MODULE
from tests.experiments.command import assert_refused
from tpt_keras.data_generators import open_task
from tpt_keras.data_generators.pair_files import Pair
from tpt_keras.data_generators.pair_files import write_pairs
from tpt_keras.decoding import Generator
from tpt_keras.models import Transformer
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.questions import evaluate
from tpt_keras.training.state.model_folder import read_training
from tpt_keras.training.trainer import Trainer

SPLITS = ["train", "interpolate", "extrapolate"]
PROBLEMS = [
    "--dataset=mathematics_dataset",
    "--data_dir=/nowhere",
    f"--modules={MODULE}",
]


@pytest.fixture
def other_model_dir(tmp_path):
    """The folder of a model that reads short questions only."""
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


@pytest.fixture
def report(run, tmp_path, trained_model_dir, other_model_dir):
    """Function that runs the command on two models."""
    data_dir = read_training(trained_model_dir)["data_dir"]

    def report(*arguments):
        return run(
            "report",
            f"--model_dirs={trained_model_dir},{other_model_dir}",
            f"--modules={MODULE}",
            f"--data_dir={data_dir}",
            f"--output={tmp_path / 'written' / 'report.html'}",
            *arguments,
        )

    return report


@pytest.mark.slow
def test_the_report_has_the_evaluations_accuracies(
    report, monkeypatch, tmp_path, trained_model, trained_model_dir
):
    page = tmp_path / "written" / "report.html"
    splits = f"--splits={','.join(SPLITS)}"
    result = report(splits)
    assert (result.status, result.stderr) == (0, "")
    # A line for each of two models and three splits.
    assert result.stdout.count(MODULE) == 6
    assert result.stdout.endswith(f"{page}\n")
    content = json.loads(page.with_suffix(".json").read_text())
    first, other = content["models"]
    assert (first["step"], other["step"]) == (60, None)
    assert first["weights"] == trained_model.count_params()
    trainer = Trainer(trained_model)
    trainer.compile(jit_compile=False)
    problems = content["problems"]
    task = open_task(problems["dataset"], problems["data_dir"], [MODULE])
    for row in evaluate(trainer, task, SPLITS[1:], max_examples=100):
        reported = first["splits"][row["split"]]["of_modules"][MODULE]
        assert reported["examples"] == row["examples"] == 60
        assert reported["accuracy"] == pytest.approx(row["sequence_accuracy"])
    assert 0.0 < first["splits"]["train"]["accuracy"] < 1.0
    unread = other["splits"]["interpolate"]["unread"]
    assert 0 < unread < 60
    assert "TP-Transformer" in page.with_suffix(".md").read_text()
    for split in SPLITS:
        picture = page.with_name(f"report_{split}.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
    assert "shorten it to" in page.read_text()
    # Of the one that was trained here.
    levels = [each["level"] for each in content["reached"]]
    assert levels == [0.4, 0.6, 0.76]
    assert {each["name"] for each in content["reached"]} == {first["name"]}
    assert page.with_name("report_trainings.png").exists()

    def computed(*_):
        raise AssertionError

    # Known predictions are not computed again, even for fewer problems.
    monkeypatch.setattr(Generator, "generate_on_batch", computed)
    assert report(splits).status == 0
    assert json.loads(page.with_suffix(".json").read_text()) == content
    assert report("--examples=20", "--splits=train").status == 0
    fewer = json.loads(page.with_suffix(".json").read_text())["models"][0]
    assert fewer["splits"]["train"]["examples"] == 20
    # Another model needs new ones.
    save_model(tmp_path / "other")
    with pytest.raises(AssertionError):
        report(splits)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--model_dirs="], ["--model_dirs"]),
        (["--examples=0"], ["--examples"]),
        (["--batch_size=0"], ["--batch_size"]),
        (["--output=report.pdf"], ["--output", "report.pdf", ".html"]),
        (["--dataset=mine", *PROBLEMS[1:]], ["dataset", "'mine'"]),
        (["--modules=numbers__no", *PROBLEMS[:2]], ["'numbers__no'"]),
        ([], ["--dataset"]),
        (PROBLEMS[:1], ["--data_dir"]),
        (PROBLEMS[:2], ["--modules"]),
        (PROBLEMS, ["'/nowhere'"]),
    ],
)
def test_refused(run, tmp_path, arguments, parts):
    result = run("report", f"--model_dirs={tmp_path / 'model'}", *arguments)
    assert_refused(result, *parts)


def test_options_of_another_dataset_are_not_taken(run, tmp_path):
    save_model(tmp_path)
    training = TrainingConfig.from_flat(
        modules=["one"],
        dataset="mathematics_stream",
        dataset_options=["validation_problems=9"],
    )
    config = {"training": training.to_stored()}
    (tmp_path / "config.json").write_text(json.dumps(config))
    data = tmp_path / "problems.jsonl"
    write_pairs(data, [Pair("1 + 1", "2", "one", "interpolate")])
    result = run(
        "report",
        f"--model_dirs={tmp_path}",
        "--dataset=text_pairs",
        f"--data_dir={data}",
        f"--output={tmp_path / 'report.html'}",
    )
    assert result.status == 0, result.stderr
    content = json.loads((tmp_path / "report.json").read_text())
    assert content["problems"]["dataset_options"] == []


def test_trainings_of_different_modules_need_a_flag(run, tmp_path):
    for module in ("numbers__gcd", "numbers__lcm"):
        (tmp_path / module).mkdir()
        stored = TrainingConfig.from_flat(modules=[module]).to_stored()
        (tmp_path / module / "config.json").write_text(
            json.dumps({"training": stored})
        )
    folders = f"{tmp_path}/numbers__gcd,{tmp_path}/numbers__lcm"
    result = run("report", f"--model_dirs={folders}")
    assert_refused(result, "--modules")


def test_a_missing_split_or_model_is_refused(run, tmp_path, place_value_data):
    arguments = (
        f"--model_dirs={tmp_path / 'nothing'}",
        "--dataset=mathematics_dataset",
        f"--modules={MODULE}",
        f"--data_dir={place_value_data}",
        f"--output={tmp_path / 'written' / 'report.html'}",
    )
    result = run("report", *arguments, "--splits=train,tests")
    assert_refused(result, "split", "'tests'", "interpolate")
    assert_refused(run("report", *arguments), tmp_path / "nothing")
    assert not (tmp_path / "written").exists()
