"""Evaluation of a model, group by group and split by split."""

import itertools
import json
import pathlib

import filelock

from tpt_keras.data_generators.batches import ProblemBatches
from tpt_keras.data_generators.examples import random_part
from tpt_keras.data_generators.examples import readable_examples
from tpt_keras.files import reading
from tpt_keras.files import whole_file
from tpt_keras.training import backends
from tpt_keras.training.state.logs import best_row
from tpt_keras.training.state.logs import read_metrics

EVALUATION_FILE = "evaluation.json"

# An evaluation replaces another one with the same values of these.
_KEY = ("model", "step", "dataset", "module", "split")


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
            part = random_part(part, stop=max_examples)
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
            # Keras does not know the length of the feed.
            steps=batches.steps_per_epoch,
            return_dict=True,
            verbose=0,
        )
    return {name: results[name] for name in trainer.evaluated}


def write_evaluations(model_dir, rows):
    """Adds evaluations, and replaces earlier ones of the same.

    Args:
        model_dir: Folder of the model.
        rows: List of dicts with `model`, `"last"` or `"best"`, its `step`,
            `dataset`, `module`, `split` and the results.

    Raises:
        UsageError: If the existing file is damaged.
    """
    path = pathlib.Path(model_dir) / EVALUATION_FILE
    # Another evaluation may end at the same time.
    with filelock.FileLock(path.with_name(".evaluation.lock")):
        kept = {_key(row): row for row in read_evaluations(model_dir)}
        kept |= {_key(row): row for row in rows}
        with whole_file(path) as partial:
            partial.write_text(json.dumps(list(kept.values()), indent=2))


def read_evaluations(model_dir):
    """Reads the evaluations of a model.

    Args:
        model_dir: Its folder.

    Returns:
        List of dicts, as they were written.

    Raises:
        UsageError: If the file is damaged.
    """
    path = pathlib.Path(model_dir) / EVALUATION_FILE
    if not path.exists():
        return []
    with reading(path, "Restore it, or move it away."):
        rows = json.loads(path.read_text())
        if not (
            isinstance(rows, list)
            and all(isinstance(row, dict) for row in rows)
        ):
            raise ValueError("it is no list of evaluations")
    return rows


def saved_step(model_dir, best):
    """Returns the step of a training's saved model.

    Args:
        model_dir: The training's folder.
        best: `True` for the best model, `False` for the last one.

    Returns:
        The step, or `None` if it is unknown.
    """
    rows = read_metrics(model_dir)
    # The first of equal ones was kept.
    row = best_row(rows) if best else next(reversed(rows), None)
    return row and row["step"]


def _key(row):
    return tuple(str(row.get(name)) for name in _KEY)
