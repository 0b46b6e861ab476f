import json

import pytest

from tpt_keras.models import PRESETS
from tpt_keras.models.configs import to_stored
from tpt_keras.training.config import TrainingConfig
from tpt_keras.tuning.report import flagfile
from tpt_keras.tuning.report import write_report

TRAINING = TrainingConfig.from_flat(
    modules=["m"],
    train_steps=40,
    learning_rate=2e-3,
    dataset_options=["a=1", "b=2"],
)
MODEL = PRESETS["transformer"].replace(
    hidden_dim=8, intermediate_dim=9, num_heads=2, num_layers=1
)


SEARCH = {
    "tuner": "random",
    "objective": "val_sequence_accuracy",
    "executions_per_trial": 2,
    "space": {"min_weights": 3000, "max_weights": 4000},
    "training": TRAINING.to_stored(),
}


def result(number, status, scores, reason="", **values):
    return {
        "trial": f"{number:02}",
        "status": status,
        "hyperparameters": {"variant": "transformer", **values},
        "weights": 3456,
        "scores": scores,
        "score": sum(scores) / 2 if scores else None,
        "folder": f"trials/{number}",
        "reason": reason,
    }


RESULTS = [
    result(0, "completed", [0.2, 0.4], schedule="constant"),
    result(2, "failed", [], "The loss <of> 3 | is NaN.", schedule="constant"),
    result(10, "completed", [0.8, 0.9], schedule="cosine", warmup_share=0.1),
]


def stored(preset, model, training):
    return {
        "preset": preset,
        "model": to_stored(model),
        "training": training.to_stored(),
    }


def test_report_has_every_trial_and_the_winners_flagfile(tmp_path):
    winner = tmp_path / "trials/10"
    winner.mkdir(parents=True)
    config = stored("transformer", MODEL, TRAINING)
    (winner / "config.json").write_text(json.dumps(config))
    write_report(tmp_path, SEARCH, RESULTS)
    assert json.loads((tmp_path / "report.json").read_text()) == RESULTS
    text = (tmp_path / "report.md").read_text()
    assert "3 trials (2 completed, 1 failed)" in text
    _, best, everything = text.split("\n## ")
    [row] = [line for line in best.splitlines() if "completed" in line]
    assert row.startswith("| 10 | completed | transformer | cosine |")
    assert "| 3,456 | 0.85 | 0.8, 0.9 |" in row
    table = [line for line in everything.splitlines() if line[:1] == "|"]
    assert len(table) == 2 + 3
    assert len({line.count("|") for line in table}) == 1
    assert (tmp_path / "best.cfg").read_text() == (
        "--preset=transformer\n"
        "--hparams=hidden_dim=8,intermediate_dim=9,num_heads=2,num_layers=1\n"
        "--modules=m\n"
        "--dataset_options=a=1,b=2\n"
        "--learning_rate=0.002\n"
        "--train_steps=40\n"
    )


def test_search_without_a_completed_trial_has_no_winner(tmp_path):
    write_report(tmp_path, SEARCH, RESULTS[1:2])
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["report.json", "report.md"]


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("lstm_attention", {"hidden_dim": 8}),
        ("tp_transformer_relative", {"attention_options": {"max_distance": 8}}),
        ("tp_transformer_tiny", {"vocabulary": "mathematics_words"}),
    ],
)
def test_flagfile_makes_the_same_model(preset, changes):
    model = PRESETS[preset].replace(**changes)
    training = TrainingConfig.from_flat(modules=["m"])
    text = flagfile(stored(preset, model, training))
    _, hparams, modules = text.splitlines()
    overrides = PRESETS[preset].parse_overrides(
        hparams.removeprefix("--hparams=")
    )
    assert PRESETS[preset].replace(**overrides) == model
    assert modules == "--modules=m"
