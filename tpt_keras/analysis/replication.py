"""The paper's models scaled down, and the results of several seeds of each."""

import math
import statistics

from tpt_keras.errors import UsageError
from tpt_keras.models import count_weights
from tpt_keras.models.presets import PRESETS

# The rows of the paper's Table 1 that it trained.
ROWS = (
    "transformer",
    "tp_transformer",
    "tp_transformer_b",
    "tp_transformer_c",
)


def scaled_config(name, scale, num_layers, num_heads):
    """Scales the widths of a preset.

    Args:
        name: Name of the preset, one of `ROWS`.
        scale: Factor of the hidden size and of the filter.
        num_layers: Number of layers.
        num_heads: Number of heads.

    Returns:
        A `TransformerConfig`.

    Raises:
        UsageError: If the scale is not positive, or makes a hidden size that
            the heads do not divide.

    Example:

    >>> small = scaled_config("tp_transformer_b", 0.25, 2, num_heads=4)
    >>> small.hidden_dim, small.intermediate_dim
    (120, 480)
    """
    preset = PRESETS[name]
    if not 0 < scale < math.inf:
        raise UsageError(
            f"`scale` must be positive and finite. Received: {scale}.",
            field="scale",
        )
    hidden_dim = round(scale * preset.hidden_dim)
    if not hidden_dim or hidden_dim % num_heads:
        raise UsageError(
            f"`scale`, {scale}, makes {hidden_dim} of {name}'s hidden size, "
            f"{preset.hidden_dim}, which must be a multiple of `num_heads`, "
            f"{num_heads}. Take another `scale` or fewer heads.",
            field="scale",
        )
    return preset.replace(
        hidden_dim=hidden_dim,
        intermediate_dim=round(scale * preset.intermediate_dim),
        num_layers=num_layers,
        num_heads=num_heads,
    )


def replication_rows(models):
    """Computes a row of Table 1 for each model.

    Args:
        models: Dict of presets' names to lists with the report of each seed:
            dicts with `weights` and `splits`.

    Returns:
        List of dicts: `name`, `weights`, the paper's as `paper_weights`, the
        number of `seeds`, and `splits`, dicts of splits to `mean`, `lowest`
        and `highest` accuracy and `solved`, the mean number of modules above
        95%.
    """
    return [
        {
            "name": name,
            "weights": seeds[0]["weights"],
            "paper_weights": count_weights(PRESETS[name]),
            "seeds": len(seeds),
            "splits": {
                split: _over_seeds([seed["splits"][split] for seed in seeds])
                for split in seeds[0]["splits"]
            },
        }
        for name, seeds in models.items()
    ]


def _over_seeds(results):
    accuracies = [result["accuracy"] for result in results]
    return {
        "mean": statistics.mean(accuracies),
        "lowest": min(accuracies),
        "highest": max(accuracies),
        "solved": statistics.mean(result["solved"] for result in results),
    }


def mean_rows(trainings, metric):
    """Averages a metric over trainings, at the steps that all of them have.

    Args:
        trainings: List of the rows of each training, see `read_metrics`.
        metric: Name of the metric.

    Returns:
        List of rows with a `step` and the metric.

    Example:

    >>> one, other = [{"step": 2, "loss": 1.0}], [{"step": 2, "loss": 3.0}]
    >>> mean_rows([one, other], "loss")
    [{'step': 2, 'loss': 2.0}]
    """
    series = [
        {row["step"]: row[metric] for row in rows if metric in row}
        for rows in trainings
    ]
    return [
        {"step": step, metric: statistics.mean(each[step] for each in series)}
        for step in sorted(set.intersection(*map(set, series)))
    ]
