import math

import pytest

from tpt_keras.analysis.accuracies import PUBLISHED
from tpt_keras.analysis.accuracies import mean_accuracy
from tpt_keras.analysis.accuracies import module_accuracy
from tpt_keras.analysis.accuracies import split_accuracies
from tpt_keras.analysis.predictions import Prediction


def predictions(right, wrong, unread=0):
    return [
        *[Prediction("q", "1", "1", -0.1)] * right,
        *[Prediction("q", "1", "2", -0.1)] * wrong,
        *[Prediction("q", "1", unread="empty")] * unread,
    ]


def test_wilsons_interval():
    row = module_accuracy(predictions(8, 1, 1))
    assert (row["right"], row["examples"], row["unread"]) == (8, 10, 1)
    # As its formula gives it.
    z, p, n = 1.959963985, 0.8, 10
    middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    assert row["low"] == pytest.approx(middle - half)
    assert row["high"] == pytest.approx(middle + half)


def test_every_module_counts_alike():
    rows = split_accuracies(
        {
            ("train", "a"): predictions(1, 0),
            ("train", "b"): predictions(0, 8, 1),
            ("interpolate", "a"): predictions(95, 5),
            ("interpolate", "b"): predictions(96, 4),
        }
    )
    assert rows["train"]["accuracy"] == 0.5
    assert (rows["train"]["examples"], rows["train"]["unread"]) == (10, 1)
    assert rows["interpolate"]["accuracy"] == pytest.approx(0.955)
    # Above 95%.
    assert rows["interpolate"]["solved"] == 1
    assert rows["interpolate"]["of_modules"]["b"]["right"] == 96


def test_the_mean_of_modules_is_surer_than_each():
    row = module_accuracy(predictions(30, 10))
    mean = mean_accuracy({str(number): row for number in range(25)})
    assert mean["accuracy"] == pytest.approx(0.75)
    for end in ("low", "high"):
        distance = (row[end] - 0.75) / 5
        assert mean[end] - 0.75 == pytest.approx(distance)
    # Of modules that are all wrong in a sample, the mean is not sure either.
    none = module_accuracy(predictions(0, 40))
    mean = mean_accuracy({"a": none, "b": none})
    assert 0.0 == mean["low"] < mean["high"]


def test_the_papers_table():
    rows = {
        (row["name"], row["weights"], row["step"]): row for row in PUBLISHED
    }
    assert len(rows) == len(PUBLISHED) == 11
    best = rows["TP-Transformer", 49_200_000, 1_700_000]["splits"]
    assert best["train"]["accuracy"] == pytest.approx(0.9104)
    assert best["interpolate"] == {"accuracy": 0.8424, "solved": 25}
    assert best["extrapolate"] == {"accuracy": 0.554, "solved": 3}
    assert "train" not in rows["Simple LSTM", 18_000_000, 500_000]["splits"]
