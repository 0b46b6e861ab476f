"""Predictions of a model for many problems, and the files that keep them."""

import dataclasses
import hashlib
import json
import operator
import pathlib
import shutil

import keras

from tpt_keras.answer import OK
from tpt_keras.answer import explain
from tpt_keras.decoding import Generator
from tpt_keras.errors import UnreadableFileError
from tpt_keras.files import reading
from tpt_keras.files import whole_file
from tpt_keras.models.configs import to_stored

_DECIMALS = 5
_IDENTITY_FILE = "model.json"


@dataclasses.dataclass(frozen=True)
class Prediction:
    """A problem and a model's greedy answer.

    Args:
        question: A string.
        target: The right answer.
        answer: The model's answer, or `None` if it cannot read the question.
        log_prob: Log-probability of the answer and its end symbol, in nats.
        unread: The reason why the model cannot read the question, or `None`.
        is_right: `True` if the answer counts as right.
    """

    question: str
    target: str
    answer: str | None = None
    log_prob: float | None = None
    unread: str | None = None
    is_right: bool = False


def prediction_generator(model, batch_size=64):
    """Makes the generator for `predict`.

    Args:
        model: A `SequenceToSequence`.
        batch_size: Number of questions decoded together.

    Returns:
        A greedy `Generator`. Its longest answer has room for the end symbol,
        as the targets of training have.
    """
    max_length = model.config.max_answer_length + 1
    return Generator(model, max_length=max_length, batch_size=batch_size)


def predict(generator, problems, is_right=operator.eq):
    """Answers problems.

    Args:
        generator: A `Generator`, see `prediction_generator`.
        problems: List of pairs of a question and its right answer.
        is_right: Function from an answer and its target to a bool, see
            `Task.is_right`.

    Returns:
        List of `Prediction`s in the order of the problems. A question that
        the model cannot read has no answer.

    Example:

    >>> from tpt_keras.models import Transformer
    >>> model = Transformer.from_preset("tp_transformer_tiny")
    >>> generator = prediction_generator(model)
    >>> [prediction] = predict(generator, [("", "0")])
    >>> prediction.answer, prediction.unread
    (None, 'is empty; ask something')
    """
    config = generator.model.config
    answers = generator.answer([question for question, _ in problems])
    predictions = []
    for (question, target), answer in zip(problems, answers):
        if answer.status == OK:
            log_prob = round(answer.log_prob, _DECIMALS)
            each = Prediction(
                question,
                target,
                answer.text,
                log_prob,
                is_right=is_right(answer.text, target),
            )
        else:
            reason = explain(
                question,
                answer.status,
                config.vocabulary,
                config.max_question_length,
            )
            each = Prediction(question, target, unread=reason)
        predictions.append(each)
    return predictions


class PredictionFolder:
    """A folder that keeps one model's predictions as JSON lines.

    `model.json` describes the model. Predictions of another model are removed.

    Args:
        path: The folder. It need not exist.
        identity: Dict that describes the model, with its `fingerprint`.
    """

    def __init__(self, path, identity):
        self._path = pathlib.Path(path)
        self._identity = identity

    def predict(
        self, split, module, problems, make_generator, is_right=operator.eq
    ):
        """Answers the problems of a module that have no prediction yet.

        A file that has all of them, and more, is kept.

        Args:
            split: Name of the split.
            module: Name of the module.
            problems: List of pairs of a question and its right answer.
            make_generator: Function that returns a `Generator`. It is called
                only if a prediction is missing.
            is_right: See `predict`.

        Returns:
            List of `Prediction`s in the order of the problems.
        """
        path = self._path / split / f"{module}.jsonl"
        known = {(old.question, old.target): old for old in self._read(path)}
        unique = list(dict.fromkeys(problems))
        missing = [problem for problem in unique if problem not in known]
        if missing:
            new = predict(make_generator(), missing, is_right)
            known |= zip(missing, new)
            self._write(path, [known[problem] for problem in unique])
        return [known[each] for each in problems]

    def _read(self, path):
        """Reads a file; a missing or damaged one has no predictions."""
        if not self._is_of_this_model():
            return []
        try:
            with reading(path):
                lines = path.read_text(encoding="utf-8").splitlines()
                return [Prediction(**json.loads(line)) for line in lines]
        except UnreadableFileError:
            return []

    def _is_of_this_model(self):
        path = self._path / _IDENTITY_FILE
        try:
            with reading(path):
                fingerprint = json.loads(path.read_text())["fingerprint"]
        except UnreadableFileError:
            return False
        return fingerprint == self._identity["fingerprint"]

    def _write(self, path, predictions):
        if not self._is_of_this_model():
            shutil.rmtree(self._path, ignore_errors=True)
            self._path.mkdir(parents=True)
            with whole_file(self._path / _IDENTITY_FILE) as partial:
                partial.write_text(json.dumps(self._identity, indent=2))
        path.parent.mkdir(exist_ok=True)
        lines = [
            json.dumps(dataclasses.asdict(each), ensure_ascii=False) + "\n"
            for each in predictions
        ]
        with whole_file(path) as partial:
            partial.write_text("".join(lines), encoding="utf-8")


def model_fingerprint(model):
    """Returns a checksum of a model's weights, configuration and dtype.

    Args:
        model: A `SequenceToSequence`.

    Returns:
        String of 16 hexadecimal digits.
    """
    described = to_stored(model.config), model.dtype_policy.name
    digest = hashlib.sha256(json.dumps(described).encode())
    for weight in model.weights:
        digest.update(keras.ops.convert_to_numpy(weight).tobytes())
    return digest.hexdigest()[:16]
