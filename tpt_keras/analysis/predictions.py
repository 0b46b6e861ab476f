"""Predictions of a model for many problems, and the files that keep them."""

import dataclasses
import hashlib
import json
import operator

import keras

from tpt_keras.answer import OK
from tpt_keras.answer import explain
from tpt_keras.decoding import Generator
from tpt_keras.errors import UnreadableFileError
from tpt_keras.files import reading
from tpt_keras.files import whole_file
from tpt_keras.models.configs import to_stored

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


def prediction_generator(model, batch_size=64):
    """Makes the greedy `Generator` for `predict`."""
    # As the targets of training, the longest answer has an end symbol.
    max_length = model.config.max_answer_length + 1
    return Generator(model, max_length=max_length, batch_size=batch_size)


def predict(generator, problems, is_right=operator.eq):
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
            found = {
                "answer": answer.text,
                "log_prob": round(answer.log_prob, _DECIMALS),
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


def kept_predictions(path, problems, generator, is_right=operator.eq):
    """Answers the problems that have no prediction in a file of JSON lines yet.

    A file that has all of them, and more, is kept. The predictions of a missing
    or damaged file are made again.
    """
    known = {(old.question, old.target): old for old in _read(path)}
    unique = list(dict.fromkeys(problems))
    missing = [problem for problem in unique if problem not in known]
    if missing:
        known |= zip(missing, predict(generator, missing, is_right))
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as partial:
            lines = (
                json.dumps(vars(known[problem]), ensure_ascii=False) + "\n"
                for problem in unique
            )
            partial.write_text("".join(lines), encoding="utf-8")
    return [known[problem] for problem in problems]


def _read(path):
    try:
        with reading(path):
            lines = path.read_text(encoding="utf-8").splitlines()
            return [Prediction(**json.loads(line)) for line in lines]
    except UnreadableFileError:
        return []


def model_fingerprint(model):
    """Returns a checksum of a model's weights, configuration and dtype."""
    described = to_stored(model.config), model.dtype_policy.name
    digest = hashlib.sha256(json.dumps(described).encode())
    for weight in model.weights:
        digest.update(keras.ops.convert_to_numpy(weight).tobytes())
    return digest.hexdigest()[:16]
