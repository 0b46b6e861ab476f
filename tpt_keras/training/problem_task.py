import numpy as np

from tpt_keras.data_generators import training_task
from tpt_keras.data_generators.task import training_batches
from tpt_keras.errors import UsageError
from tpt_keras.models import build_model
from tpt_keras.models.configs import SequenceToSequenceConfig
from tpt_keras.models.sequence_to_sequence import SequenceToSequence
from tpt_keras.training.evaluation import evaluate
from tpt_keras.training.evaluation import evaluate_batches
from tpt_keras.training.trainer import Trainer


class ProblemTask:
    """The training of a model that answers the questions of a `Task`.

    Args:
        model_config: A `SequenceToSequenceConfig`.
        config: A `TrainingConfig`.

    Attributes:
        model_config: The configuration of the model to train.
        task: The `Task`.
        training: The training's `ProblemBatches`.
        validation: The validation's.
        fingerprints: See `Task.fingerprints`.

    Raises:
        UsageError: If the problems are missing or too few, or some of a sample
            are too long for the model.
    """

    model_classes = (SequenceToSequence,)
    trainer_class = Trainer
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
        self._config = config
        self.task = training_task(config)
        self.model_config = self.task.adapted(model_config)
        self.training, self.validation = training_batches(
            self.task, self.model_config, config
        )
        for batches in (self.training, self.validation):
            # Checks lengths now, before anything is written.
            _ = batches.length_pairs
        self.fingerprints = self.task.fingerprints

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
        """Evaluates a model on validation and on the task's splits.

        Args:
            trainer: A compiled `Trainer`.
            examples: Largest number of problems of every module and split,
                besides those of validation.

        Returns:
            Dict of floats.
        """
        results = evaluate_batches(trainer, self.validation)
        metrics = {f"val_{name}": value for name, value in results.items()}
        if not examples:
            return metrics
        for split in self.task.splits:
            accuracies = {
                f"{split}/{result['module']}": result["sequence_accuracy"]
                for result in evaluate(
                    trainer,
                    self.task,
                    [split],
                    self._config.data.batch_size,
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
        """The score of an evaluation's metrics; higher is better."""
        return metrics["val_sequence_accuracy"]

    def describe_batch(self, data_step):
        """Describes a training batch for an error message."""
        return f"number {data_step}"
