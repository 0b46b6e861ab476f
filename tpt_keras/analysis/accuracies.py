"""Accuracies of samples, how sure they are, and the paper's Table 1."""

import math

# Of a module, to be counted as solved.
SOLVED = 0.95
CONFIDENCE = 0.95


def module_accuracy(predictions):
    """The accuracy of a sample of a module's problems.

    Args:
        predictions: List of `Prediction`s.

    Returns:
        Dict of `accuracy`; `low` and `high`, Wilson's 95% confidence interval;
        and the numbers of `examples`, of those answered `right` and of those
        `unread`, which count as wrong.
    """
    from scipy.stats import binomtest

    right = sum(each.is_right for each in predictions)
    interval = binomtest(right, len(predictions)).proportion_ci(
        CONFIDENCE, method="wilson"
    )
    return {
        "accuracy": right / len(predictions),
        "low": float(interval.low),
        "high": float(interval.high),
        "right": right,
        "examples": len(predictions),
        "unread": sum(each.unread is not None for each in predictions),
    }


def mean_accuracy(accuracies):
    """The mean over modules, each of which counts alike.

    Its interval is MOVER's (Zou and Donner, 2008), which combines intervals of
    independent samples: its distance to the mean is the root of the sum of the
    squares of the modules' own, by their number; of the upper ends and of the
    lower ones apart. A module without any right answer is no sure thing there,
    as it would be by the variance p (1 - p) / n.

    Args:
        accuracies: Dict of modules to what `module_accuracy` gives.

    Returns:
        Dict of `accuracy`, `low` and `high`, the numbers of `modules` and of
        those `solved`, with an accuracy above 95%, and of `examples` and those
        `unread` over all.

    Example:

    >>> module = {"low": 0.4, "high": 0.8, "examples": 20, "unread": 0}
    >>> means = mean_accuracy(
    ...     {"a": {"accuracy": 0.5, **module}, "b": {"accuracy": 0.5, **module}}
    ... )
    >>> round(means["low"], 4), means["accuracy"], round(means["high"], 4)
    (0.4293, 0.5, 0.7121)
    """
    rows = list(accuracies.values())
    mean = sum(row["accuracy"] for row in rows) / len(rows)

    def distance(end):
        return math.hypot(*(row[end] - row["accuracy"] for row in rows)) / len(
            rows
        )

    return {
        "accuracy": mean,
        "low": max(0.0, mean - distance("low")),
        "high": min(1.0, mean + distance("high")),
        "modules": len(rows),
        "solved": sum(row["accuracy"] > SOLVED for row in rows),
        "examples": sum(row["examples"] for row in rows),
        "unread": sum(row["unread"] for row in rows),
    }


def split_accuracies(predictions):
    """The accuracies of a model's splits.

    Args:
        predictions: Dict of pairs, a split and a module, to lists of
            `Prediction`s.

    Returns:
        Dict of splits to what `mean_accuracy` gives, and `of_modules`, a dict
        of modules to what `module_accuracy` gives.
    """
    splits = {}
    for (split, module), of_module in predictions.items():
        rows = splits.setdefault(split, {})
        rows[module] = module_accuracy(of_module)
    return {
        split: {**mean_accuracy(rows), "of_modules": rows}
        for split, rows in splits.items()
    }


def _published(source, name, weights, steps, train, *splits):
    """A row, of millions of weights, thousands of steps and percents."""
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
# Two texts of the paper, with trainings of their own.
_FIRST = "Schlag et al., text of October 2019"
_BC = "Schlag et al., text with B and C"

# Table 1 of the paper, of all 56 modules.
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
