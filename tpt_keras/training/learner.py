"""The base class of what `train` learns."""

from typing import Any

from tpt_keras.data_generators.batches import NumberedBatches
from tpt_keras.models.configs import ModelConfig
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.trainer import Trainer


class Learner:
    """The data of a training, and the model that learns it.

    Args:
        model_config: A `ModelConfig`.
        config: A `TrainingConfig`.

    Attributes:
        model_classes: Classes of the models that it trains.
        learns_on_replicas: Whether it trains on several devices.
        validated_by: What sets the validation apart, for the record.
        model_config: The configuration of the model to train.
        training: The batches of the training.
        validation: The batches of the validation.
        fingerprints: Dict of hashes of the data.
    """

    model_classes: tuple[type, ...]
    learns_on_replicas: bool
    validated_by: str | None
    model_config: ModelConfig
    training: NumberedBatches
    validation: NumberedBatches
    fingerprints: dict[str, str]

    def __init__(self, model_config: Any, config: TrainingConfig) -> None:
        raise NotImplementedError

    @staticmethod
    def make_trainer(model_config: Any, config: TrainingConfig) -> Trainer:
        """Makes a new model and its `Trainer`, not compiled."""
        raise NotImplementedError

    def evaluate(self, trainer: Trainer) -> dict[str, float]:
        """Returns the metrics of an evaluation; see `MetricsLog`."""
        raise NotImplementedError

    @staticmethod
    def score(metrics: dict[str, float]) -> float:
        """Returns the score of an evaluation's metrics; higher is better."""
        raise NotImplementedError
