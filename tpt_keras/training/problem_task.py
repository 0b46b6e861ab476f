import numpy as np

from tpt_keras.data_generators.prepared_data import DATASETS
from tpt_keras.errors import UsageError
from tpt_keras.models.build_model import MODELS
from tpt_keras.models.build_model import build_model
from tpt_keras.models.sequence_to_sequence_config import (
    SequenceToSequenceConfig,
)
from tpt_keras.training.evaluate import evaluate
from tpt_keras.training.evaluate import evaluate_batches
from tpt_keras.training.training_data import data_fingerprints
from tpt_keras.training.training_data import module_mix
from tpt_keras.training.training_data import training_batches
from tpt_keras.training.training_data import training_sources
from tpt_keras.training.transformer_trainer import TransformerTrainer


class ProblemTask:
    """To answer questions: what a `SequenceToSequence` is trained for.

    Args:
        model_config: A `SequenceToSequenceConfig`.
        config: A `TrainingConfig`.

    Attributes:
        model_config: The configuration of the model to train.
        training: The training's `ProblemBatches`.
        validation: The validation's.
        fingerprints: See `data_fingerprints`.

    Raises:
        UsageError: If the problems are not there, too few or, as far as can
            be told in no time, too long for the model.
    """

    model_classes = MODELS
    trainer_class = TransformerTrainer
    runs_on_replicas = True

    def __init__(self, model_config, config):
        if not isinstance(model_config, SequenceToSequenceConfig):
            raise UsageError(
                f"A {type(model_config).__name__} answers no questions. Train "
                "a language model on a text (`text_file`).",
            )
        if config.data.text_file:
            raise UsageError(
                "`text_file` is for a language model, such as "
                "transformer_xl_base. Any other model learns `modules`."
            )
        self.model_config = model_config
        self._config = config
        sources = training_sources(config)
        self.training, self.validation = training_batches(
            sources, model_config, config
        )
        for batches in (self.training, self.validation):
            # Chosen now, and not with the first batch: the problems that they
            # are chosen for are refused before anything is written.
            _ = batches.length_pairs
        self.fingerprints = data_fingerprints(sources)

    @staticmethod
    def make_model(model_config, config):
        """Builds a new model to train.

        Args:
            model_config: A `SequenceToSequenceConfig`.
            config: A `TrainingConfig`.

        Returns:
            A `SequenceToSequence`.
        """
        return build_model(model_config, config.run.precision)

    def evaluate(self, trainer, examples):
        """The metrics of an evaluation; see `MetricsLog`.

        Args:
            trainer: A compiled `TransformerTrainer`.
            examples: Problems of every module and split to look at, besides
                the validation's.

        Returns:
            Dict of floats.
        """
        results = evaluate_batches(trainer, self.validation)
        metrics = {f"val_{name}": value for name, value in results.items()}
        if not examples:
            return metrics
        for split in ("interpolate", "extrapolate"):
            if split not in DATASETS[self._config.data.dataset]:
                continue
            accuracies = {
                f"{split}/{result['module']}": result["sequence_accuracy"]
                for result in evaluate(
                    trainer,
                    self._config.data.modules,
                    [split],
                    self._config.data.data_dir,
                    self._config.data.batch_size,
                    self._config.data.dataset,
                    examples,
                )
            }
            if accuracies:
                metrics[f"{split}_sequence_accuracy"] = float(
                    np.mean(list(accuracies.values()))
                )
                metrics |= accuracies
        return metrics

    def score(self, metrics):
        """How good an evaluation's metrics are; more is better."""
        return metrics["val_sequence_accuracy"]

    def describe_batch(self, data_step):
        """What there is to say about a training batch."""
        return module_mix(self.training, self._config, data_step)
