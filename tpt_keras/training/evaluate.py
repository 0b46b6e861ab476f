"""Accuracy of a model, group by group and split by split."""

import itertools

from tpt_keras.data_generators.batches import ProblemBatches
from tpt_keras.data_generators.examples import ExampleSlice
from tpt_keras.data_generators.examples import readable_examples
from tpt_keras.training import backends


def evaluate(trainer, task, splits=None, batch_size=256, max_examples=None):
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
        List of dicts of `module` (the group), `split`, `examples`, `too_long`
        (the number of unreadable ones), `sequence_accuracy` and, of the
        readable ones, `loss` (nats per token) and `token_accuracy`, which are
        `None` if there are none.

    Raises:
        UsageError: If the task lacks a split.
    """
    splits = task.splits if splits is None else splits
    # A missing split is refused before anything is computed.
    examples = {split: task.examples(split) for split in splits}
    results = []
    for group, split in itertools.product(task.groups, splits):
        if group not in examples[split]:
            continue
        part = examples[split][group]
        if max_examples is not None:
            part = ExampleSlice(part, stop=max_examples)
        results.append(
            {
                "module": group,
                "split": split,
                "examples": len(part),
                **_evaluate_examples(trainer, part, batch_size),
            }
        )
    return results


def _evaluate_examples(trainer, examples, batch_size):
    """The metrics of one group's examples."""
    model = trainer.model
    readable = readable_examples(examples, model.config)
    results = {"too_long": len(examples) - len(readable)}
    if not len(readable):
        return (
            results
            | dict.fromkeys(trainer.evaluated, None)
            | {"sequence_accuracy": 0.0}
        )
    batches = ProblemBatches(readable, model.tokenizer, batch_size)
    results |= evaluate_batches(trainer, batches)
    results["sequence_accuracy"] *= len(readable) / len(examples)
    return results


def evaluate_batches(trainer, batches):
    """Evaluates a model on an epoch of batches.

    Args:
        trainer: A compiled `Trainer`.
        batches: A `NumberedBatches`.

    Returns:
        Dict of the trainer's `evaluated` metrics: `loss` (nats per token),
        `token_accuracy`, and `sequence_accuracy` or `bits_per_character`.
    """
    with backends.scope(trainer.strategy), batches.own_errors():
        results = trainer.evaluate(
            trainer.feed(batches, num_epochs=1),
            # Keras does not learn the length of what it is fed.
            steps=batches.steps_per_epoch,
            return_dict=True,
            verbose=0,
        )
    return {name: results[name] for name in trainer.evaluated}
