"""What a model answers to many problems, computed together by length."""

import dataclasses

import numpy as np

from tpt_keras.analysis.cells import encode_questions
from tpt_keras.errors import check_positive_integer

# Batches of questions that are sorted out together, and kept when they are
# all answered: more of them pad less, and take longer to be kept.
_GROUP_BATCHES = 16
_DECIMALS = 5


@dataclasses.dataclass(frozen=True)
class Prediction:
    """A problem, and what a model answers.

    An answer is right if it is the target. Greedy decoding gives a target, its
    end included, exactly if every of its symbols is the likeliest after those
    before it, so that this is the accuracy of `SequenceAccuracy`.

    Args:
        question: A string.
        target: The right answer.
        answer: The model's, or `None` where it cannot read the question.
        log_prob: Log-probability that the model gives its answer, with the end
            symbol, in nats.
        unread: Why the model cannot read the question.
    """

    question: str
    target: str
    answer: str | None = None
    log_prob: float | None = None
    unread: str | None = None

    @property
    def is_right(self):
        return self.answer == self.target


def predict(model, problems, batch_size=64, on_answers=None):
    """Lets a model answer problems, greedily.

    Args:
        model: A `SequenceToSequence`.
        problems: List of pairs of a question and its right answer.
        batch_size: Number of questions decoded together.
        on_answers: Function that is called with the number of answers that
            were found since it was called last.

    Returns:
        List of as many `Prediction`s. A question that the model cannot read,
        for its length or a character, is one of them and has no answer.

    Raises:
        UsageError: If `batch_size` is no positive integer.

    Example:

    >>> from tpt_keras.models import Transformer
    >>> model = Transformer.from_preset("tp_transformer_tiny")
    >>> [prediction] = predict(model, [("What is 1 % 1?", "0")])
    >>> prediction.answer, prediction.unread
    (None, "unknown character: '%'")
    """
    check_positive_integer("batch_size", batch_size)
    on_answers = on_answers or (lambda count: None)
    predictions = [
        Prediction(question, target, unread=_why_unread(model, question))
        for question, target in problems
    ]
    readable = [i for i, each in enumerate(predictions) if not each.unread]
    on_answers(len(predictions) - len(readable))
    readable.sort(key=lambda index: len(predictions[index].question))
    num_batches = -(-len(readable) // batch_size)
    # Even ones, of one shape.
    rows = -(-len(readable) // max(num_batches, 1))
    for start in range(0, len(readable), max(rows, 1)):
        indices = readable[start : start + rows]
        questions = [predictions[index].question for index in indices]
        for index, (answer, log_prob) in zip(
            indices, _answer(model, questions, rows)
        ):
            predictions[index] = dataclasses.replace(
                predictions[index], answer=answer, log_prob=log_prob
            )
        on_answers(len(indices))
    return predictions


def predict_samples(model, samples, known, batch_size, on_answers, on_sample):
    """Lets a model answer samples of problems, several samples at once.

    Args:
        model: Function without arguments that gives a `SequenceToSequence`. It
            is called only where something is to be computed.
        samples: Dict of any keys to lists of pairs of a question and its right
            answer.
        known: Function of a key that gives `Prediction`s of earlier, of these
            problems or others.
        batch_size: Number of questions decoded together.
        on_answers: See `predict`; of known ones, too.
        on_sample: Function that is called with a key and its predictions when
            they are all there.

    Returns:
        Dict of the keys to lists of `Prediction`s.
    """
    found = {}
    for group in _groups(samples, known, _GROUP_BATCHES * batch_size):
        waiting = [problem for _, _, missing in group for problem in missing]
        new = waiting and predict(model(), waiting, batch_size, on_answers)
        answered = dict(zip(waiting, new, strict=True))
        for key, earlier, missing in group:
            earlier |= {problem: answered[problem] for problem in missing}
            found[key] = [earlier[problem] for problem in samples[key]]
            on_answers(len(found[key]) - len(missing))
            on_sample(key, found[key])
    return found


def _groups(samples, known, size):
    """Lists of samples' keys, what is known and what is missing of each.

    There are at least `size` problems missing of a list, but for the last.
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


def _why_unread(model, question):
    """What keeps a model from reading a question, or `None`."""
    limit = model.config.max_question_length
    if not question:
        return "empty"
    if len(question) > limit:
        return f"too long: {len(question)} characters, at most {limit}"
    unknown = sorted(set(question) - set(model.tokenizer.vocabulary))
    if unknown:
        return f"unknown character: {unknown[0]!r}"
    return None


def _answer(model, questions, rows):
    """Answers with their log-probabilities; in a batch of so many rows."""
    token_ids = encode_questions(model, questions)
    count = len(token_ids)
    token_ids = np.pad(token_ids, ((0, rows - count), (0, 0)), mode="edge")
    # The longest answer has its end, too, as where its targets are given.
    found = model.search_on_batch(token_ids, model.config.max_answer_length + 1)
    for ids, log_prob in zip(
        found["token_ids"][:count, 0], found["log_probs"][:count, 0].tolist()
    ):
        yield model.tokenizer.decode(ids), round(log_prob, _DECIMALS)
