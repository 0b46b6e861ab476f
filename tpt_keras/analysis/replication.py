"""The paper's models scaled down, and what several seeds of each came to."""

import statistics

from tpt_keras.models.count_weights import count_weights
from tpt_keras.models.presets import PRESETS

# The rows of the paper's Table 1 that it trained.
ROWS = (
    "transformer",
    "tp_transformer",
    "tp_transformer_b",
    "tp_transformer_c",
)


def scaled_config(name, scale, num_layers, num_heads):
    """A preset whose widths are a share of the paper's.

    Args:
        name: Name of the preset, one of `ROWS`.
        scale: The share, which a hidden size and a filter are multiplied by.
        num_layers: Number of layers.
        num_heads: Number of heads.

    Returns:
        A `TransformerConfig`.

    Raises:
        UsageError: If the heads do not divide a hidden size, or nothing is
            left of it.

    Example:

    >>> small = scaled_config("tp_transformer_b", 0.25, 2, num_heads=4)
    >>> small.hidden_dim, small.intermediate_dim
    (120, 480)
    """
    preset = PRESETS[name]
    return preset.replace(
        hidden_dim=round(scale * preset.hidden_dim),
        intermediate_dim=round(scale * preset.intermediate_dim),
        num_layers=num_layers,
        num_heads=num_heads,
    )


def replication_rows(models):
    """What the seeds of each of the `ROWS` came to.

    Args:
        models: Dict of presets' names to lists of what `experiments.report`
            tells of a model, one of each seed: dicts with `weights` and
            `splits`.

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
    """A metric's mean over trainings, at the steps that all of them have.

    Args:
        trainings: List of rows of metrics, as `read_metrics` returns them.
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
