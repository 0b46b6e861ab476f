import dataclasses
import json

import pytest

from tpt_keras.errors import UsageError
from tpt_keras.models import PRESETS
from tpt_keras.models import count_weights
from tpt_keras.models.configs import to_stored
from tpt_keras.training.config import TrainingConfig
from tpt_keras.tuning.report import flagfile
from tpt_keras.tuning.report import write_report
from tpt_keras.tuning.trials import ensure_search
from tpt_keras.tuning.trials import write_trial

TRAINING = TrainingConfig.from_flat(
    modules=["m"], train_steps=40, learning_rate=2e-3
)
MODEL = PRESETS["transformer"].replace(
    hidden_dim=8, intermediate_dim=9, num_heads=2, num_layers=1
)


@pytest.fixture
def search(tiny_space):
    return {
        "tuner": "random",
        "objective": "val_sequence_accuracy",
        "executions_per_trial": 2,
        "space": dataclasses.asdict(tiny_space),
        "training": TRAINING.flat(),
    }


def leave_trial(folder, number, status, scores, reason="", **values):
    """Writes the files of a trial."""
    trial_dir = folder / "trials" / f"name{number}"
    record = {
        "trial": f"{number:02}",
        "hyperparameters": values,
        "status": status,
        "scores": scores,
        "reason": reason,
    }
    write_trial(trial_dir, record)
    for execution, score in enumerate(scores):
        model_dir = trial_dir / f"execution{execution}"
        model_dir.mkdir()
        config = {
            "preset": values["variant"],
            "model": to_stored(MODEL),
            "training": TRAINING.to_stored(),
        }
        (model_dir / "config.json").write_text(json.dumps(config))
        rows = [
            {"step": step, "val_sequence_accuracy": value}
            for step, value in ((20, score / 2), (40, score))
        ]
        (model_dir / "metrics.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows)
        )


@pytest.fixture
def folder(tmp_path, search):
    """A search with four trials: one has failed, one is running."""
    ensure_search(tmp_path, search)
    common = {"variant": "transformer", "schedule": "constant"}
    leave_trial(tmp_path, 0, "completed", [0.2, 0.4], **common)
    leave_trial(
        tmp_path,
        10,
        "completed",
        [0.8, 0.9],
        variant="transformer",
        schedule="cosine",
        adam_learning_rate=4e-3,
    )
    leave_trial(
        tmp_path, 2, "failed", [], "The loss <of> 3 | is NaN.", **common
    )
    leave_trial(tmp_path, 3, "running", [], **common)
    return tmp_path


def test_report_has_every_trial(folder):
    trials = write_report(folder)
    assert [trial["trial"] for trial in trials] == ["00", "02", "03", "10"]
    first, failed, running, _ = trials
    assert first["score"] == pytest.approx(0.3)
    assert first["best_step"] == 40
    assert first["weights"] == count_weights(MODEL)
    assert first["folder"] == "trials/name0"
    assert failed["reason"]
    assert failed["weights"] is None
    assert running["score"] is None
    assert json.loads((folder / "report.json").read_text()) == trials


def test_tables_have_a_row_for_every_trial(folder):
    write_report(folder)
    text = (folder / "report.md").read_text()
    assert "4 trials (2 completed, 1 failed, 1 running)" in text
    _, best, everything = text.split("\n## ")
    [row] = [line for line in best.splitlines() if "completed" in line]
    assert row.startswith("| 10 | completed | transformer | cosine |")
    assert "| 0.85 | 0.8 | 0.9 | 40 |" in row
    table = [line for line in everything.splitlines() if line[:1] == "|"]
    assert len(table) == 2 + 4
    assert len({line.count("|") for line in table}) == 1


def test_pictures_are_drawn(folder):
    write_report(folder)
    for name in ("choices.png", "parallel_coordinates.png"):
        assert f"![{name}]({name})" in (folder / "report.md").read_text()
        assert (folder / name).read_bytes().startswith(b"\x89PNG")


def test_flagfile_is_of_the_best_trial(folder):
    write_report(folder)
    assert (folder / "best.cfg").read_text() == (
        "--preset=transformer\n"
        "--hparams=hidden_dim=8,intermediate_dim=9,num_heads=2,num_layers=1\n"
        "--modules=m\n"
        "--learning_rate=0.002\n"
        "--train_steps=40\n"
    )


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("lstm_attention", {"hidden_dim": 8}),
        ("tp_transformer_relative", {"attention_options": {"max_distance": 8}}),
    ],
)
def test_flagfile_makes_the_same_model(preset, changes):
    model = PRESETS[preset].replace(**changes)
    text = flagfile(
        {
            "preset": preset,
            "model": to_stored(model),
            "training": TrainingConfig.from_flat(modules=["m"]).to_stored(),
        }
    )
    _, hparams, modules = text.splitlines()
    overrides = PRESETS[preset].parse_overrides(
        hparams.removeprefix("--hparams=")
    )
    assert PRESETS[preset].replace(**overrides) == model
    assert modules == "--modules=m"


def test_search_without_a_completed_trial_has_no_winner(tmp_path, search):
    ensure_search(tmp_path, search)
    assert write_report(tmp_path) == []
    assert not (tmp_path / "best.cfg").exists()
    assert "png" not in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize("name", ["search.json", "trials/name0/trial.json"])
def test_damaged_file_is_named(folder, name):
    (folder / name).write_text("{")
    with pytest.raises(UsageError) as caught:
        write_report(folder)
    assert caught.value.path == str(folder / name)


def test_folder_without_a_search_is_refused(tmp_path):
    with pytest.raises(UsageError) as caught:
        write_report(tmp_path)
    assert caught.value.path == str(tmp_path)
