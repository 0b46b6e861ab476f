"""Predictions of a model for many problems, and the files that keep them."""

import dataclasses
import hashlib
import json
import pathlib
import shutil

import keras

from tpt_keras.answer import OK
from tpt_keras.answer import explain
from tpt_keras.decoding import Generator
from tpt_keras.files import whole_file
from tpt_keras.models.stored_config import to_stored

# Questions that are answered before their predictions are kept. More of them
# need less padding.
_GROUP_SIZE = 1024
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
    """

    question: str
    target: str
    answer: str | None = None
    log_prob: float | None = None
    unread: str | None = None

    @property
    def is_right(self):
        """`True` if the answer equals the target.

        This is the accuracy of `SequenceAccuracy`: greedy decoding gives a
        target exactly if each of its symbols is the likeliest after those
        before it.
        """
        return self.answer == self.target


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


def predict(generator, problems):
    """Answers problems.

    Args:
        generator: A `Generator`, see `prediction_generator`.
        problems: List of pairs of a question and its right answer.

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
            each = Prediction(question, target, answer.text, log_prob)
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


def predict_samples(make_generator, samples, known, on_sample):
    """Answers several samples of problems together.

    Args:
        make_generator: Function that returns a `Generator`. It is called only
            if a problem has no known prediction.
        samples: Dict from any keys to lists of pairs of a question and its
            right answer.
        known: Function from a key to earlier `Prediction`s, of these problems
            or others.
        on_sample: Function that is called with a key and its predictions as
            soon as they are complete.

    Returns:
        Dict from the keys to lists of `Prediction`s.
    """
    found = {}
    for group in _groups(samples, known, _GROUP_SIZE):
        waiting = [problem for _, _, missing in group for problem in missing]
        new = waiting and predict(make_generator(), waiting)
        answered = dict(zip(waiting, new, strict=True))
        for key, earlier, missing in group:
            earlier |= {problem: answered[problem] for problem in missing}
            found[key] = [earlier[problem] for problem in samples[key]]
            on_sample(key, found[key])
    return found


def _groups(samples, known, size):
    """Yields lists of keys with their known and missing predictions.

    Each list, except for the last, has at least `size` missing ones.
    """
    group, num_missing = [], 0
    for key, problems in samples.items():
        earlier = {(each.question, each.target): each for each in known(key)}
        missing = [p for p in dict.fromkeys(problems) if p not in earlier]
        group.append((key, earlier, missing))
        num_missing += len(missing)
        if num_missing >= size:
            yield group
            group, num_missing = [], 0
    yield group


class PredictionFolder:
    """A folder of one model's predictions in JSON lines.

    `model.json` holds the model's identity. The first write removes the
    predictions of any other model.

    Args:
        path: The folder. It need not exist.
        identity: Dict that describes the model, with its `fingerprint`.
    """

    def __init__(self, path, identity):
        self._path = pathlib.Path(path)
        self._identity = identity

    def read(self, split, module):
        """Reads the predictions of a module.

        Args:
            split: Name of the split.
            module: Name of the module.

        Returns:
            List of `Prediction`s, empty if there are none or the file is
            damaged.
        """
        path = self._file(split, module)
        if not (path.is_file() and self._is_of_this_model()):
            return []
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            return [Prediction(**json.loads(line)) for line in lines]
        except (ValueError, TypeError, RecursionError):
            return []

    def write(self, split, module, predictions):
        """Writes the predictions of a module.

        A file that already holds all of them, and more, is kept.

        Args:
            split: Name of the split.
            module: Name of the module.
            predictions: List of `Prediction`s.
        """
        if set(predictions) <= set(self.read(split, module)):
            return
        if not self._is_of_this_model():
            shutil.rmtree(self._path, ignore_errors=True)
            self._path.mkdir(parents=True)
            with whole_file(self._path / _IDENTITY_FILE) as partial:
                partial.write_text(json.dumps(self._identity, indent=2))
        path = self._file(split, module)
        path.parent.mkdir(exist_ok=True)
        lines = [
            json.dumps(dataclasses.asdict(each), ensure_ascii=False) + "\n"
            for each in predictions
        ]
        with whole_file(path) as partial:
            partial.write_text("".join(lines), encoding="utf-8")

    def _file(self, split, module):
        return self._path / split / f"{module}.jsonl"

    def _is_of_this_model(self):
        path = self._path / _IDENTITY_FILE
        if not path.is_file():
            return False
        try:
            found = json.loads(path.read_text())
            return found["fingerprint"] == self._identity["fingerprint"]
        except (ValueError, TypeError, LookupError, RecursionError):
            return False


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
