import dataclasses
import math

import keras


@dataclasses.dataclass(frozen=True)
class TrainingResult:
    """What a training has reached.

    Attributes:
        model: The trained `Transformer`.
        history: The rows of `metrics.jsonl`, dicts with `step`; see
            `MetricsLog`.
    """

    model: keras.Model
    history: list

    @property
    def best_score(self):
        """The best validation sequence accuracy; NaN without an evaluation."""
        return self._best.get("val_sequence_accuracy", math.nan)

    @property
    def best_step(self):
        """The first step that reached it; 0 without an evaluation."""
        return self._best.get("step", 0)

    @property
    def _best(self):
        scored = [
            row
            for row in self.history
            if math.isfinite(row.get("val_sequence_accuracy", math.nan))
        ]
        return max(
            scored, key=lambda row: row["val_sequence_accuracy"], default={}
        )
