"""The training of models that answer questions, and their evaluation."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpt_keras.data_generators import training_task
from tpt_keras.data_generators.batches import ProblemBatches
from tpt_keras.data_generators.examples import readable_examples
from tpt_keras.data_generators.task import Task
from tpt_keras.data_generators.task import split_batches
from tpt_keras.errors import UsageError
from tpt_keras.models import build_model
from tpt_keras.models.configs import SequenceToSequenceConfig
from tpt_keras.models.sequence_to_sequence import SequenceToSequence
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.learner import Learner
from tpt_keras.training.trainer import Trainer


class QuestionLearner(Learner):
    """Lets `train` learn the questions of a `Task`, its attribute `task`.

    A language model has a `TextLearner` in its place.

    Raises:
        UsageError: If the problems are missing or too few, or some of a sample
            are too long for the model.
    """

    training: ProblemBatches
    validation: ProblemBatches
    model_classes = (SequenceToSequence,)
    learns_on_replicas = True
    # Trainings of version 0.13.0, which lack this, trained on some of them.
    validated_by = "questions"

    def __init__(
        self, model_config: SequenceToSequenceConfig, config: TrainingConfig
    ) -> None:
        if not isinstance(model_config, SequenceToSequenceConfig):
            raise UsageError(
                f"A {type(model_config).__name__} answers no questions. Train "
                "a language model on a text (`text_file`).",
            )
        self._config = config
        self.task = training_task(config)
        self.model_config = self.task.adapted(model_config)
        self.training, self.validation = split_batches(
            self.task, self.model_config, config
        )
        for batches in (self.training, self.validation):
            # Checks lengths now, before anything is written.
            _ = batches.length_pairs
        self.fingerprints = self.task.fingerprints

    @staticmethod
    def make_trainer(model_config, config):
        return Trainer(
            build_model(model_config, config.run.precision),
            global_clipnorm=config.optimizer.global_clipnorm,
            gradient_accumulation_steps=config.run.gradient_accumulation_steps,
        )

    def evaluate(self, trainer: Trainer) -> dict[str, float]:
        results = trainer.evaluate_batches(self.validation)
        metrics = {f"val_{name}": value for name, value in results.items()}
        examples = self._config.run.evaluation_examples
        if not examples:
            return metrics
        batch_size = self._config.data.batch_size
        for split in self.task.splits:
            found = evaluate(trainer, self.task, [split], batch_size, examples)
            accuracies = {
                f"{split}/{result['module']}": result["sequence_accuracy"]
                for result in found
            }
            if accuracies:
                metrics[f"{split}_sequence_accuracy"] = float(
                    np.mean(list(accuracies.values()))
                )
                metrics |= accuracies
        return metrics

    @staticmethod
    def score(metrics: dict[str, float]) -> float:
        return metrics["val_sequence_accuracy"]


def evaluate(
    trainer: Trainer,
    task: Task,
    splits: Sequence[str] | None = None,
    batch_size: int = 256,
    max_examples: int | None = None,
) -> list[dict[str, Any]]:
    """Evaluates a model on a task.

    A question that is too long for the model (`max_question_length`,
    `max_answer_length`) or has an unknown character counts as wrong, because
    `solve` would refuse it or cut its answer off.

    Args:
        trainer: A compiled `Trainer`.
        task: A `Task`.
        splits: Names of splits. Defaults to the task's splits for evaluation.
        batch_size: Problems in a batch.
        max_examples: Largest number of problems of every group and split,
            always the same ones. Defaults to all.

    Returns:
        List of dicts of `module` (the group), `split`, `examples`, `unread`
        (those that the model cannot read), `sequence_accuracy` and, of the
        readable ones, `loss` (nats per token) and `token_accuracy`, which are
        `None` if there are none.

    Raises:
        UsageError: If the task lacks a split.
    """
    splits = task.splits if splits is None else splits
    # A missing split is refused before anything is computed.
    examples = {split: task.sample(split, max_examples) for split in splits}
    return [
        {
            "module": group,
            "split": split,
            **_evaluate_examples(trainer, examples[split][group], batch_size),
        }
        for group, split in itertools.product(task.groups, splits)
        if group in examples[split]
    ]


def _evaluate_examples(trainer, examples, batch_size):
    model = trainer.model
    readable = readable_examples(examples, model.config)
    results = {
        "examples": len(examples),
        "unread": len(examples) - len(readable),
        "loss": None,
        "sequence_accuracy": 0.0,
        "token_accuracy": None,
    }
    if len(readable):
        batches = ProblemBatches(readable, model.tokenizer, batch_size)
        results |= trainer.evaluate_batches(batches)
        results["sequence_accuracy"] *= len(readable) / len(examples)
    return results
