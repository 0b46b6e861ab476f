"""Accuracies with their intervals, and the paper's Table 1."""

import math
import statistics
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

# A module above this accuracy counts as solved.
SOLVED = 0.95
CONFIDENCE = 0.95
# Quantile of the normal distribution at both ends of the interval.
_Z = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


def module_accuracy(result: dict[str, Any]) -> dict[str, float]:
    """Computes a module's accuracy with Wilson's 95% confidence interval.

    Takes a result of `tpt_keras.training.questions.evaluate`. Returns a dict of
    `accuracy`, the ends `low` and `high` of its interval, and the numbers of
    `examples`, of those that are `right`, and of those that the model cannot
    read (`unread`), which count as wrong.
    """
    count = result["examples"]
    right = round(result["sequence_accuracy"] * count)
    low, high = _wilson_interval(right / count, count)
    return {
        "accuracy": right / count,
        "low": low,
        "high": high,
        "right": right,
        "examples": count,
        "unread": result["unread"],
    }


def _wilson_interval(share, count):
    middle = share + _Z**2 / (2 * count)
    half = _Z * math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
    scale = 1 + _Z**2 / count
    # Rounding must not put the share itself outside.
    return (
        min(share, max(0.0, (middle - half) / scale)),
        max(share, min(1.0, (middle + half) / scale)),
    )


def mean_accuracy(accuracies: dict[str, dict[str, float]]) -> dict[str, float]:
    """Computes the mean over modules, each with the same weight.

    The interval is MOVER's (Zou and Donner, 2008), which combines intervals of
    independent samples. A module without a right answer adds to it, unlike with
    the variance p (1 - p) / n.

    Args:
        accuracies: Dict from modules to results of `module_accuracy`.
    """
    rows = list(accuracies.values())
    mean = sum(row["accuracy"] for row in rows) / len(rows)

    def distance(end):
        distances = (row[end] - row["accuracy"] for row in rows)
        return math.hypot(*distances) / len(rows)

    return {
        "accuracy": mean,
        "low": max(0.0, mean - distance("low")),
        "high": min(1.0, mean + distance("high")),
        "modules": len(rows),
        "solved": sum(row["accuracy"] > SOLVED for row in rows),
        "examples": sum(row["examples"] for row in rows),
        "unread": sum(row["unread"] for row in rows),
    }


def split_accuracies(
    results: Iterable[dict[str, Any]],
) -> dict[str, dict[str, Any]]:
    """Computes the accuracies of a model by split, with those `of_modules`."""
    splits = {}
    for result in results:
        rows = splits.setdefault(result["split"], {})
        rows[result["module"]] = module_accuracy(result)
    return {
        split: {**mean_accuracy(rows), "of_modules": rows}
        for split, rows in splits.items()
    }


def mean_over_seeds(
    models: Sequence[dict[str, dict[str, Any]]],
) -> dict[str, dict[str, Any]]:
    """Computes the mean accuracies of models that differ in their seed alone.

    Takes results of `split_accuracies`. `low` and `high` are the lowest and the
    highest seed's accuracies.
    """
    splits = {}
    for split in models[0]:
        results = [model[split] for model in models]
        accuracies = [result["accuracy"] for result in results]
        solved = statistics.mean(result["solved"] for result in results)
        splits[split] = {
            "accuracy": statistics.mean(accuracies),
            "low": min(accuracies),
            "high": max(accuracies),
            "solved": round(solved, 1),
            "modules": results[0]["modules"],
        }
    return splits


def _published(source, name, weights, steps, train, *splits):
    """Makes a row from millions of weights, thousands of steps and percents."""
    accuracy, solved, extrapolation, extrapolation_solved = splits
    row = {
        "name": name,
        "source": source,
        "weights": round(weights * 1e6),
        "step": steps * 1000,
        "splits": {
            "interpolate": {"accuracy": _share(accuracy), "solved": solved},
            "extrapolate": {
                "accuracy": _share(extrapolation),
                "solved": extrapolation_solved,
            },
        },
    }
    if train is not None:
        row["splits"]["train"] = {"accuracy": _share(train)}
    return row


def _share(percent):
    return round(percent / 100, 4)


_SAXTON = "Saxton et al., 2019"
# Two versions of the paper, with different trainings.
_FIRST = "Schlag et al., text of October 2019"
_BC = "Schlag et al., text with B and C"

# Table 1 of the paper, for all 56 modules.
PUBLISHED = [
    _published(_SAXTON, "Simple LSTM", 18, 500, None, 57.0, 6, 41.0, 1),
    _published(_SAXTON, "Transformer", 30, 500, None, 76.0, 13, 50.0, 1),
    _published(_FIRST, "Transformer", 44.2, 500, 83.06, 75.33, 12, 52.42, 1),
    _published(_FIRST, "Transformer", 44.2, 700, 85.01, 77.42, 14, 52.0, 2),
    _published(_FIRST, "TP-Transformer", 49.2, 500, 85.41, 78.3, 16, 52.22, 2),
    _published(_FIRST, "TP-Transformer", 49.2, 700, 87.25, 80.67, 18, 52.48, 3),
    _published(_FIRST, "TP-Transformer", 49.2, 1700, 91.04, 84.24, 25, 55.4, 3),
    _published(_BC, "Transformer", 44.2, 1000, 86.6, 79.54, 16, 53.28, 2),
    _published(_BC, "TP-Transformer", 49.1, 1000, 89.01, 81.92, 18, 54.67, 3),
    _published(_BC, "TP-Transformer B", 43, 1000, 87.53, 80.52, 16, 52.04, 1),
    _published(_BC, "TP-Transformer C", 30, 1000, 86.33, 79.02, 14, 54.71, 1),
]
