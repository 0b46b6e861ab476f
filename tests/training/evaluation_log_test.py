import json
import threading

import pytest

from tpt_keras.errors import UsageError
from tpt_keras.training.evaluation import read_evaluations
from tpt_keras.training.evaluation import saved_step
from tpt_keras.training.evaluation import write_evaluations


def row(model="last", step=10, module="numbers__gcd", **rest):
    return {
        "model": model,
        "step": step,
        "dataset": "mathematics_dataset",
        "module": module,
        "split": "interpolate",
        "loss": 1.5,
        **rest,
    }


def test_a_row_for_each(tmp_path):
    rows = [
        row(),
        row(model="best"),
        row(step=20),
        row(module="numbers__place_value"),
        row(split="extrapolate"),
        row(dataset="math_dataset"),
    ]
    write_evaluations(tmp_path, rows[:2])
    write_evaluations(tmp_path, rows[2:])
    assert read_evaluations(tmp_path) == rows


def test_the_same_again_takes_its_place(tmp_path):
    write_evaluations(tmp_path, [row(), row(model="best")])
    write_evaluations(tmp_path, [row(loss=0.5)])
    assert read_evaluations(tmp_path) == [row(loss=0.5), row(model="best")]


def test_those_of_version_0_2_are_kept(tmp_path):
    old = {"module": "numbers__gcd", "split": "interpolate", "loss": 2.5}
    (tmp_path / "evaluation.json").write_text(json.dumps([old]))
    write_evaluations(tmp_path, [row()])
    assert read_evaluations(tmp_path) == [old, row()]


@pytest.mark.parametrize("content", [b"", b"[{", b"{}", b"[1]", b"\xff"])
def test_a_damaged_file(tmp_path, content):
    path = tmp_path / "evaluation.json"
    path.write_bytes(content)
    with pytest.raises(UsageError):
        write_evaluations(tmp_path, [row()])
    assert path.read_bytes() == content


def test_two_at_once(tmp_path):
    """Neither takes the other's rows away."""
    threads = [
        threading.Thread(
            target=write_evaluations, args=(tmp_path, [row(step=step)])
        )
        for step in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    steps = {row["step"] for row in read_evaluations(tmp_path)}
    assert steps == set(range(20))


def test_the_step_of_a_saved_model(tmp_path):
    assert saved_step(tmp_path, best=True) is None
    assert saved_step(tmp_path, best=False) is None
    scores = {2: 0.25, 4: 0.5, 6: float("nan"), 8: 0.5, 10: 0.375}
    lines = [
        json.dumps({"step": step, "val_sequence_accuracy": score})
        for step, score in scores.items()
    ]
    lines.append(json.dumps({"step": 11, "loss": 1.5}))
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    # The first of the equal ones: the second was no better.
    assert saved_step(tmp_path, best=True) == 4
    assert saved_step(tmp_path, best=False) == 11
