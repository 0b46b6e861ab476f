import math

import pytest

from tpt_keras.analysis.accuracies import PUBLISHED
from tpt_keras.analysis.accuracies import mean_accuracy
from tpt_keras.analysis.accuracies import mean_over_seeds
from tpt_keras.analysis.accuracies import module_accuracy
from tpt_keras.analysis.accuracies import split_accuracies


def result(right, count, unread=0, split="test", module="a"):
    return {
        "split": split,
        "module": module,
        "examples": count,
        "unread": unread,
        "sequence_accuracy": right / count,
    }


@pytest.mark.parametrize(
    ("right", "count", "low", "high"),
    # scipy.stats.binomtest(right, count).proportion_ci(method="wilson")
    [
        (8, 10, 0.4901624715366418, 0.9433178485456248),
        (0, 40, 0.0, 0.08762160119728664),
        (40, 40, 0.9123783988027133, 1.0),
    ],
)
def test_the_interval_is_wilsons(right, count, low, high):
    row = module_accuracy(result(right, count))
    assert (row["right"], row["examples"]) == (right, count)
    assert row["low"] == pytest.approx(low, abs=1e-12)
    assert row["high"] == pytest.approx(high, abs=1e-12)
    assert row["low"] <= row["accuracy"] <= row["high"]


def test_every_module_has_the_same_weight():
    rows = split_accuracies(
        [
            result(1, 1, split="train"),
            result(0, 9, unread=1, split="train", module="b"),
            result(95, 100),
            result(96, 100, module="b"),
        ]
    )
    assert rows["train"]["accuracy"] == 0.5
    assert (rows["train"]["examples"], rows["train"]["unread"]) == (10, 1)
    assert rows["test"]["accuracy"] == pytest.approx(0.955)
    # A module of exactly 95% is not solved.
    assert rows["test"]["solved"] == 1
    assert rows["test"]["of_modules"]["b"]["right"] == 96


def test_the_means_interval_shrinks_with_the_number_of_modules():
    row = module_accuracy(result(30, 40))
    mean = mean_accuracy({str(number): row for number in range(25)})
    assert mean["accuracy"] == pytest.approx(0.75)
    for end in ("low", "high"):
        distance = (row[end] - 0.75) / math.sqrt(25)
        assert mean[end] - 0.75 == pytest.approx(distance)
    none = module_accuracy(result(0, 40))
    mean = mean_accuracy({"a": none, "b": none})
    assert 0.0 == mean["low"] < mean["high"]


def test_seeds_have_a_mean_and_a_range():
    seeds = [split_accuracies([result(right, 100)]) for right in (96, 60)]
    mean = mean_over_seeds(seeds)["test"]
    assert mean["accuracy"] == pytest.approx(0.78)
    assert (mean["low"], mean["high"]) == (0.6, 0.96)
    assert (mean["solved"], mean["modules"]) == (0.5, 1)


def test_a_published_row_is_the_papers():
    [best] = [row for row in PUBLISHED if row["step"] == 1_700_000]
    assert best["weights"] == 49_200_000
    assert best["splits"] == {
        "train": {"accuracy": 0.9104},
        "interpolate": {"accuracy": 0.8424, "solved": 25},
        "extrapolate": {"accuracy": 0.554, "solved": 3},
    }
