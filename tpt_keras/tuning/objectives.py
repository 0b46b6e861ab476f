"""What a search may look for: metrics of the validation."""

from tpt_keras.training.metrics_log import best_row

# Which of two is better: the larger or the smaller one.
OBJECTIVES = {
    "val_sequence_accuracy": "max",
    "val_token_accuracy": "max",
    "val_loss": "min",
}


def best_of(history, objective):
    """Where a training was best.

    Args:
        history: The rows of its `metrics.jsonl`.
        objective: A name in `OBJECTIVES`.

    Returns:
        See `metrics_log.best_row`.
    """
    best = max if OBJECTIVES[objective] == "max" else min
    return best_row(history, objective, best)
