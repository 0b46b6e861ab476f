"""Predictions, accuracies with intervals, and the paper's Table 1."""

import dataclasses
import hashlib
import json
import math
import operator
import pathlib
import statistics
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras

from tpt_keras.answer import OK
from tpt_keras.answer import explain
from tpt_keras.decoding import Generator
from tpt_keras.errors import UnreadableFileError
from tpt_keras.files import reading
from tpt_keras.files import write_text
from tpt_keras.models import SequenceToSequence
from tpt_keras.models.configs import to_stored

# A module above this accuracy counts as solved.
SOLVED = 0.95
CONFIDENCE = 0.95
# Quantile of the normal distribution at both ends of the interval.
_Z = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
_DECIMALS = 5


@dataclasses.dataclass(frozen=True)
class Prediction:
    """A problem and a model's greedy answer.

    `unread` is the reason why the model cannot read the question, if it cannot.
    """

    question: str
    target: str
    answer: str | None = None
    log_prob: float | None = None
    unread: str | None = None
    is_right: bool = False


def prediction_generator(
    model: SequenceToSequence, batch_size: int = 64
) -> Generator:
    """Makes the greedy `Generator` for `predict`."""
    # As the targets of training, the longest answer has an end symbol.
    max_length = model.config.max_answer_length + 1
    return Generator(model, max_length=max_length, batch_size=batch_size)


def predict(
    generator: Generator,
    problems: Sequence[tuple[str, str]],
    is_right: Callable[[str, str], bool] = operator.eq,
) -> list[Prediction]:
    """Answers problems.

    Args:
        generator: A `Generator`, see `prediction_generator`.
        problems: List of pairs of a question and its right answer.
        is_right: See `Task.is_right`.

    Returns:
        List of `Prediction`s in the order of the problems.
    """
    config = generator.model.config
    predictions = []
    answers = generator.answer([question for question, _ in problems])
    for (question, target), answer in zip(problems, answers):
        if answer.status == OK:
            found: dict[str, Any] = {
                "answer": answer.text,
                "log_prob": answer.log_prob
                and round(answer.log_prob, _DECIMALS),
                "is_right": is_right(answer.text, target),
            }
        else:
            found = {
                "unread": explain(
                    question,
                    answer.status,
                    config.vocabulary,
                    config.max_question_length,
                )
            }
        predictions.append(Prediction(question, target, **found))
    return predictions


def kept_predictions(
    path: pathlib.Path,
    problems: Sequence[tuple[str, str]],
    generator: Generator,
    is_right: Callable[[str, str], bool] = operator.eq,
) -> list[Prediction]:
    """Answers the problems that have no prediction in a file of JSON lines yet.

    A file that has all of them, and more, is kept. The predictions of a missing
    or damaged file are made again.
    """
    known = {(old.question, old.target): old for old in _read(path)}
    unique = list(dict.fromkeys(problems))
    missing = [problem for problem in unique if problem not in known]
    if missing:
        known |= zip(missing, predict(generator, missing, is_right))
        lines = (
            json.dumps(vars(known[problem]), ensure_ascii=False) + "\n"
            for problem in unique
        )
        write_text(path, "".join(lines))
    return [known[problem] for problem in problems]


def _read(path):
    try:
        with reading(path):
            # Not `splitlines`, which knows more ends of a line.
            *lines, _ = path.read_text(encoding="utf-8").split("\n")
            return [Prediction(**json.loads(line)) for line in lines]
    except UnreadableFileError:
        return []


def model_fingerprint(model: keras.Model) -> str:
    """Returns a checksum of a model's weights, configuration and dtype."""
    described = to_stored(model.config), model.dtype_policy.name
    digest = hashlib.sha256(json.dumps(described).encode())
    for weight in model.weights:
        digest.update(keras.ops.convert_to_numpy(weight).tobytes())
    return digest.hexdigest()[:16]


def module_accuracy(predictions: Sequence[Prediction]) -> dict[str, float]:
    """Computes the accuracy on a sample of a module's problems.

    `low` and `high` are Wilson's 95% confidence interval. `unread` questions
    count as wrong.
    """
    return counted_accuracy(
        sum(each.is_right for each in predictions),
        len(predictions),
        sum(each.unread is not None for each in predictions),
    )


def counted_accuracy(right: int, count: int, unread: int) -> dict[str, float]:
    """Computes `module_accuracy` from numbers of answers."""
    low, high = _wilson_interval(right / count, count)
    return {
        "accuracy": right / count,
        "low": low,
        "high": high,
        "right": right,
        "examples": count,
        "unread": unread,
    }


def _wilson_interval(share, count):
    middle = share + _Z**2 / (2 * count)
    half = _Z * math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
    scale = 1 + _Z**2 / count
    # Rounding must not put the share itself outside.
    return (
        min(share, max(0.0, (middle - half) / scale)),
        max(share, min(1.0, (middle + half) / scale)),
    )


def mean_accuracy(accuracies: dict[str, dict[str, float]]) -> dict[str, float]:
    """Computes the mean over modules, each with the same weight.

    The interval is MOVER's (Zou and Donner, 2008), which combines intervals of
    independent samples. On either side, its distance to the mean is the root
    of the sum of the modules' squared distances, divided by their number. A
    module without a right answer adds to it, unlike with the variance
    p (1 - p) / n.

    Args:
        accuracies: Dict from modules to results of `module_accuracy`.
    """
    rows = list(accuracies.values())
    mean = sum(row["accuracy"] for row in rows) / len(rows)

    def distance(end):
        distances = (row[end] - row["accuracy"] for row in rows)
        return math.hypot(*distances) / len(rows)

    return {
        "accuracy": mean,
        "low": max(0.0, mean - distance("low")),
        "high": min(1.0, mean + distance("high")),
        "modules": len(rows),
        "solved": sum(row["accuracy"] > SOLVED for row in rows),
        "examples": sum(row["examples"] for row in rows),
        "unread": sum(row["unread"] for row in rows),
    }


def split_accuracies(
    predictions: dict[tuple[str, str], list[Prediction]],
) -> dict[str, dict[str, Any]]:
    """Computes the accuracies of a model by split, with those `of_modules`.

    Args:
        predictions: Dict from pairs, a split and a module, to lists of
            `Prediction`s.
    """
    splits = {}
    for (split, module), of_module in predictions.items():
        rows = splits.setdefault(split, {})
        rows[module] = module_accuracy(of_module)
    return {
        split: {**mean_accuracy(rows), "of_modules": rows}
        for split, rows in splits.items()
    }


def mean_over_seeds(
    models: Sequence[dict[str, dict[str, Any]]],
) -> dict[str, dict[str, Any]]:
    """Computes the mean accuracies of models that differ in their seed alone.

    `low` and `high` are the lowest and the highest seed's accuracies.

    Args:
        models: List of results of `split_accuracies`.
    """
    splits = {}
    for split in models[0]:
        results = [model[split] for model in models]
        accuracies = [result["accuracy"] for result in results]
        solved = statistics.mean(result["solved"] for result in results)
        splits[split] = {
            "accuracy": statistics.mean(accuracies),
            "low": min(accuracies),
            "high": max(accuracies),
            "solved": round(solved, 1),
            "modules": results[0]["modules"],
        }
    return splits


def _published(source, name, weights, steps, train, *splits):
    """Makes a row from millions of weights, thousands of steps and percents."""
    accuracy, solved, extrapolation, extrapolation_solved = splits
    row = {
        "name": name,
        "source": source,
        "weights": round(weights * 1e6),
        "step": steps * 1000,
        "splits": {
            "interpolate": {"accuracy": _share(accuracy), "solved": solved},
            "extrapolate": {
                "accuracy": _share(extrapolation),
                "solved": extrapolation_solved,
            },
        },
    }
    if train is not None:
        row["splits"]["train"] = {"accuracy": _share(train)}
    return row


def _share(percent):
    return round(percent / 100, 4)


_SAXTON = "Saxton et al., 2019"
# Two versions of the paper, with different trainings.
_FIRST = "Schlag et al., text of October 2019"
_BC = "Schlag et al., text with B and C"

# Table 1 of the paper, for all 56 modules.
PUBLISHED = [
    _published(_SAXTON, "Simple LSTM", 18, 500, None, 57.0, 6, 41.0, 1),
    _published(_SAXTON, "Transformer", 30, 500, None, 76.0, 13, 50.0, 1),
    _published(_FIRST, "Transformer", 44.2, 500, 83.06, 75.33, 12, 52.42, 1),
    _published(_FIRST, "Transformer", 44.2, 700, 85.01, 77.42, 14, 52.0, 2),
    _published(_FIRST, "TP-Transformer", 49.2, 500, 85.41, 78.3, 16, 52.22, 2),
    _published(_FIRST, "TP-Transformer", 49.2, 700, 87.25, 80.67, 18, 52.48, 3),
    _published(_FIRST, "TP-Transformer", 49.2, 1700, 91.04, 84.24, 25, 55.4, 3),
    _published(_BC, "Transformer", 44.2, 1000, 86.6, 79.54, 16, 53.28, 2),
    _published(_BC, "TP-Transformer", 49.1, 1000, 89.01, 81.92, 18, 54.67, 3),
    _published(_BC, "TP-Transformer B", 43, 1000, 87.53, 80.52, 16, 52.04, 1),
    _published(_BC, "TP-Transformer C", 30, 1000, 86.33, 79.02, 14, 54.71, 1),
]
