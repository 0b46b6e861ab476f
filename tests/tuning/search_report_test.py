import dataclasses
import json

import pytest

from tests.tuning.searching import TINY_SPACE
from tpt_keras.errors import UsageError
from tpt_keras.models import PRESETS
from tpt_keras.models.count_weights import count_weights
from tpt_keras.training.config import TrainingConfig
from tpt_keras.tuning.search_folder import ensure_search
from tpt_keras.tuning.search_report import write_report

TRAINING = TrainingConfig.from_flat(
    modules=["m"], train_steps=40, learning_rate=2e-3
)
SEARCH = {
    "tuner": "random",
    "objective": "val_sequence_accuracy",
    "executions_per_trial": 2,
    "space": dataclasses.asdict(TINY_SPACE),
    "training": TRAINING.flat(),
}
MODEL = PRESETS["transformer"].replace(
    hidden_dim=8, intermediate_dim=9, num_heads=2, num_layers=1
)


def write_trial(folder, number, status, scores, **values):
    """What a search leaves of a trial."""
    trial_dir = folder / f"trial_{number:02}"
    trial_dir.mkdir()
    score = sum(scores) / len(scores) if scores else None
    trial = {
        "trial_id": f"{number:02}",
        "status": status,
        "score": score,
        "hyperparameters": {"values": values},
    }
    (trial_dir / "trial.json").write_text(json.dumps(trial))
    config = {
        "preset": values["variant"],
        "model": dataclasses.asdict(MODEL),
        "training": TRAINING.to_stored(),
    }
    for execution, score in enumerate(scores):
        model_dir = trial_dir / f"execution{execution}"
        model_dir.mkdir()
        (model_dir / "config.json").write_text(json.dumps(config))
        rows = [
            {"step": step, "val_sequence_accuracy": value}
            for step, value in ((20, score / 2), (40, score))
        ]
        (model_dir / "metrics.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows)
        )
    return trial_dir


@pytest.fixture
def folder(tmp_path):
    """A search of four trials; one has failed, one runs."""
    ensure_search(tmp_path, SEARCH)
    common = {"variant": "transformer", "schedule": "constant"}
    rate = "adam_learning_rate"
    write_trial(tmp_path, 0, "COMPLETED", [0.2, 0.4], **common, **{rate: 1e-3})
    write_trial(
        tmp_path,
        1,
        "COMPLETED",
        [0.8, 0.9],
        variant="transformer",
        schedule="cosine",
        warmup_share=0.1,
        **{rate: 4e-3, "tuner/epochs": 3, "tuner/bracket": 1},
    )
    failed = write_trial(
        tmp_path, 2, "FAILED", [], variant="tp_transformer", **{rate: 2e-3}
    )
    (failed / "failure.txt").write_text("The loss <of> step 3 | is NaN.\n")
    write_trial(tmp_path, 3, "RUNNING", [], **common, **{rate: 2e-3})
    return tmp_path


def test_the_trials(folder):
    first, second, failed, running = write_report(folder)
    assert first["score"] == pytest.approx(0.3)
    assert first["scores"] == [0.2, 0.4]
    assert first["best_step"] == 40
    assert first["weights"] == count_weights(MODEL)
    assert second["hyperparameters"] == {
        "variant": "transformer",
        "schedule": "cosine",
        "warmup_share": 0.1,
        "adam_learning_rate": 4e-3,
        "epochs": 3,
    }
    assert failed["reason"] == "The loss <of> step 3 | is NaN."
    assert failed["weights"] is None
    assert running["status"] == "running"
    assert json.loads((folder / "report.json").read_text()) == [
        first,
        second,
        failed,
        running,
    ]


def test_markdown(folder):
    write_report(folder)
    text = (folder / "report.md").read_text()
    assert "4 trials (2 completed, 1 failed, 1 running)" in text
    _, best, everything = text.split("\n## ")
    [row] = [line for line in best.splitlines() if "completed" in line]
    assert row.startswith("| 01 | completed | transformer | cosine |")
    assert "| 0.85 | 0.8 | 0.9 | 40 |" in row
    table = [line for line in everything.splitlines() if line[:1] == "|"]
    assert len(table) == 2 + 4
    assert len({line.count("|") for line in table}) == 1
    assert "The loss <of> step 3 / is NaN." in everything


def test_html(folder):
    write_report(folder)
    text = (folder / "report.html").read_text()
    assert "The loss &lt;of&gt; step 3 | is NaN." in text
    assert text.count("<tr>") == 2 + 1 + 4


def test_pictures(folder):
    write_report(folder)
    for name in ("choices.png", "parallel_coordinates.png"):
        assert f"![{name}]({name})" in (folder / "report.md").read_text()
        assert (folder / name).read_bytes().startswith(b"\x89PNG")


def test_the_winners_flagfile(folder):
    write_report(folder)
    assert (folder / "best.cfg").read_text() == (
        "--preset=transformer\n"
        "--hparams=hidden_dim=8,intermediate_dim=9,num_heads=2,num_layers=1\n"
        "--modules=m\n"
        "--learning_rate=0.002\n"
        "--train_steps=40\n"
    )


def test_where_nothing_is_completed(tmp_path):
    ensure_search(tmp_path, SEARCH)
    assert write_report(tmp_path) == []
    assert not (tmp_path / "best.cfg").exists()
    assert "png" not in (tmp_path / "report.md").read_text()


def test_another_search_is_refused_with_the_difference(folder):
    other = dataclasses.replace(TINY_SPACE, num_layers=(1, 2))
    with pytest.raises(
        UsageError, match=r"space.num_layers: \[1\] there, \[1, 2\] here"
    ):
        ensure_search(folder, {**SEARCH, "space": dataclasses.asdict(other)})
    ensure_search(folder, SEARCH)


def test_a_search_of_a_version_without_a_field_goes_on(folder):
    part, field = "space", "dropouts"
    path = folder / "search.json"
    stored = json.loads(path.read_text())
    default = stored[part].pop(field)
    path.write_text(json.dumps(stored))
    ensure_search(folder, SEARCH)
    other = {**SEARCH[part], field: [default, 0.25]}
    with pytest.raises(UsageError, match=f"{part}.{field}: "):
        ensure_search(folder, {**SEARCH, part: other})


def test_no_search(tmp_path):
    with pytest.raises(UsageError, match=r"no file .*search\.json"):
        write_report(tmp_path)


def test_a_damaged_trial(folder):
    (folder / "trial_00/trial.json").write_text("{")
    with pytest.raises(UsageError, match=r"trial_00/trial\.json' is damaged"):
        write_report(folder)
