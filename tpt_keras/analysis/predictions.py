"""What a model answers to many problems, computed together by length."""

import dataclasses

from tpt_keras.answer import OK
from tpt_keras.answer import explain
from tpt_keras.decoding import Generator

# Questions that are sorted by length and kept together: more of them need less
# padding, and take longer until they are kept.
_GROUP_SIZE = 1024
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


def prediction_generator(model, batch_size=64):
    """Makes the generator that `predict` uses.

    Args:
        model: A `SequenceToSequence`.
        batch_size: Number of questions decoded together.

    Returns:
        A greedy `Generator`. The longest answer may have its end symbol, too,
        as the targets of training have.
    """
    max_length = model.config.max_answer_length + 1
    return Generator(model, max_length=max_length, batch_size=batch_size)


def predict(generator, problems, on_answers=None):
    """Lets a model answer problems.

    Args:
        generator: A `Generator`, such as `prediction_generator` makes.
        problems: List of pairs of a question and its right answer.
        on_answers: Function that is called with the number of new answers.

    Returns:
        List of as many `Prediction`s. A question that the model cannot read
        has one without an answer.

    Example:

    >>> from tpt_keras.models import Transformer
    >>> model = Transformer.from_preset("tp_transformer_tiny")
    >>> generator = prediction_generator(model)
    >>> [prediction] = predict(generator, [("", "0")])
    >>> prediction.answer, prediction.unread
    (None, 'is empty; ask something')
    """
    config = generator.model.config
    answers = generator.answer([q for q, _ in problems], on_answers)
    return [
        Prediction(
            question, target, answer.text, round(answer.log_prob, _DECIMALS)
        )
        if answer.status == OK
        else Prediction(
            question,
            target,
            unread=explain(
                question,
                answer.status,
                config.vocabulary,
                config.max_question_length,
            ),
        )
        for (question, target), answer in zip(problems, answers)
    ]


def predict_samples(generator, samples, known, on_answers, on_sample):
    """Lets a model answer samples of problems, several samples at once.

    Args:
        generator: Function without arguments that returns a `Generator`. It is
            called only if there is something to compute.
        samples: Dict of any keys to lists of pairs of a question and its right
            answer.
        known: Function of a key that gives `Prediction`s of earlier, of these
            problems or others.
        on_answers: See `predict`; of known ones, too.
        on_sample: Function that is called with a key and its predictions when
            they are all there.

    Returns:
        Dict of the keys to lists of `Prediction`s.
    """
    found = {}
    for group in _groups(samples, known, _GROUP_SIZE):
        waiting = [problem for _, _, missing in group for problem in missing]
        new = waiting and predict(generator(), waiting, on_answers)
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
