"""What a search may look for: metrics of the validation."""

import math

# Which of two is better: the larger or the smaller one.
OBJECTIVES = {
    "val_sequence_accuracy": "max",
    "val_token_accuracy": "max",
    "val_loss": "min",
}


def best_row(history, objective):
    """Where a training was best.

    Args:
        history: The rows of its `metrics.jsonl`.
        objective: A name in `OBJECTIVES`.

    Returns:
        The first of the best rows, or `None` where the objective is not there
        or never finite.
    """
    rows = [
        row for row in history if math.isfinite(row.get(objective, math.nan))
    ]
    if not rows:
        return None
    best = max if OBJECTIVES[objective] == "max" else min
    return best(rows, key=lambda row: row[objective])
