r"""Evaluates a model on what it was not trained on.

    tpt_keras evaluate --model=models/demo \
        --splits=interpolate,extrapolate

An accuracy has its 95% confidence interval beside it.
"""

import pathlib

from absl import flags

from tpt_keras.errors import UsageError

from . import _flags
from ._flags import Problems

FLAGS = flags.FLAGS

_flags.define_model(with_best=True)
flags.DEFINE_list(
    "splits",
    None,
    "Names of the splits. Default: the dataset's for evaluation "
    "(interpolate,extrapolate); of a language model's text, validation,test.",
)
_flags.define(Problems, leave_out=("split",))
flags.DEFINE_integer(
    "batch_size",
    None,
    "Problems in a batch, or streams of a text. Default: 256; the training's.",
    lower_bound=1,
)
flags.DEFINE_string(
    "text_file", None, "A language model's text. Default: the training's."
)


def main():
    from tpt_keras.models.stored import resolve
    from tpt_keras.training.state.model_folder import read_training
    from tpt_keras.training.state.model_folder import saved_step

    folder = resolve(FLAGS.model)
    training = read_training(folder)
    if training.get("text_file"):
        rows = evaluate_text(folder, training)
    else:
        rows = evaluate_modules(folder)
    if folder.is_file() or folder != pathlib.Path(FLAGS.model):
        return  # a file, or not the user's own folder
    from tpt_keras.training.state.logs import append_rows

    # Last, because the folder may be read-only.
    name, step = ("last", "best")[FLAGS.best], saved_step(folder, FLAGS.best)
    rows = [{"model": name, "step": step, **row} for row in rows]
    append_rows(folder / "evaluations.jsonl", rows)


def evaluate_text(folder, training):
    """Evaluates a language model on unseen parts of its text."""
    from tpt_keras.language_model import load_language_model
    from tpt_keras.language_model.training import evaluate_text
    from tpt_keras.language_model.training import read_text
    from tpt_keras.language_model.training import text_fingerprint
    from tpt_keras.training.state.model_folder import warn_of_changed_data

    text = read_text(FLAGS.text_file or training["text_file"])
    warn_of_changed_data(folder, {"the text": text_fingerprint(text)})
    rows = evaluate_text(
        load_language_model(folder, FLAGS.best),
        text,
        FLAGS.splits or ["validation", "test"],
        FLAGS.batch_size or training["batch_size"],
        training["segment_length"],
    )
    for row in rows:
        print(
            f"{row['split']:12} {row['bits_per_character']:.4f} bits per "
            f"character of {row['symbols']}"
        )
    return rows


def evaluate_modules(folder):
    from tpt_keras.analysis.accuracies import module_accuracy
    from tpt_keras.analysis.accuracies import split_accuracies
    from tpt_keras.models.stored import load_model
    from tpt_keras.training.questions import evaluate
    from tpt_keras.training.trainer import Trainer

    model = load_model(folder, FLAGS.best)
    problems = Problems.of(folder)
    task = problems.task
    splits = FLAGS.splits or task.splits
    trainer = Trainer(model)
    trainer.compile(jit_compile=False)
    results = evaluate(trainer, task, splits, FLAGS.batch_size or 256)
    if not results:
        raise UsageError(
            f"None of the modules {', '.join(task.groups)} has a split of "
            f"`splits`: {', '.join(splits)}.",
            field="splits",
        )
    for result in results:
        row = module_accuracy(result)
        result |= {"low": row["low"], "high": row["high"]}
        notes = [interval(row)]
        if result["loss"] is not None:
            notes.append(f"loss {result['loss']:.4f}")
        if result["unread"]:
            notes.append(f"the model cannot read {result['unread']}")
        print(
            f"{result['module']:40} {result['split']:12} "
            f"{result['sequence_accuracy']:8.2%} of "
            f"{result['examples']} answers right ({', '.join(notes)})"
        )
    for split, mean in split_accuracies(results).items():
        count = mean["modules"]
        if count > 1:
            print(
                f"{f'mean of {count} modules':40} {split:12} "
                f"{mean['accuracy']:8.2%} ({interval(mean)})"
            )
    return [{"dataset": problems.dataset, **result} for result in results]


def interval(row):
    return f"{row['low']:.1%} to {row['high']:.1%}"
