import dataclasses
import math

import keras

from tpt_keras.training.metrics_log import best_row
from tpt_keras.training.metrics_log import objective


@dataclasses.dataclass(frozen=True)
class TrainingResult:
    """What a training has reached.

    Attributes:
        model: The trained model.
        history: The rows of `metrics.jsonl`, dicts with `step`; see
            `MetricsLog`.
    """

    model: keras.Model
    history: list

    @property
    def best_score(self):
        """The best validation sequence accuracy; NaN without an evaluation.

        Of a language model, the fewest bits per character.
        """
        row = best_row(self.history)
        return row[objective(self.history)] if row else math.nan

    @property
    def best_step(self):
        """The first step that reached it; 0 without an evaluation."""
        row = best_row(self.history)
        return row["step"] if row else 0
