import numpy as np
import pytest

from tests.conftest import MODULE
from tests.data_generators.list_source import ListSource
from tpt_keras.data_generators import problem_batches
from tpt_keras.errors import UsageError
from tpt_keras.models.transformer_config import TransformerConfig
from tpt_keras.training import problem_lengths
from tpt_keras.training.problem_lengths import CheckedSource
from tpt_keras.training.problem_lengths import problems_taken
from tpt_keras.training.problem_task import ProblemTask
from tpt_keras.training.train import train
from tpt_keras.training.training_data import training_batches
from tpt_keras.training.training_data import training_sources

CONFIG = TransformerConfig(max_question_length=5, max_answer_length=2)


def source_of(*problems):
    return ListSource((q.encode(), a.encode()) for q, a in problems)


def everything(source):
    return list(zip(*source.read(np.arange(len(source)))))


@pytest.fixture
def longest_question(tiny_training):
    """How many characters the longest training question has."""
    (source,) = training_sources(tiny_training).values()
    return max(map(len, source.read(np.arange(len(source)))[0]))


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (
            ("123456", "1"),
            r"numbers__gcd.* question of 6 .* takes 5.*"
            r"--hparams=max_question_length=6,",
        ),
        (
            ("1", "éé1"),
            r"numbers__gcd.* answer of 3 .* takes 2.*"
            r"--hparams=max_answer_length=3,",
        ),
    ],
)
def test_a_training_problem_that_is_too_long(problem, message):
    source = source_of(("12345", "12"), problem, ("1", "1"))
    checked = CheckedSource(source, "numbers__gcd", CONFIG)
    assert len(checked) == 3
    with pytest.raises(UsageError, match=message):
        checked.read(np.arange(3))
    # What is not read is not looked at.
    questions, answers = checked.read(np.array([2, 0]))
    assert list(zip(questions, answers)) == [(b"1", b"1"), (b"12345", b"12")]


def test_a_length_is_counted_in_characters():
    source = source_of(("ééééé", "éé"))
    for problems in (
        CheckedSource(source, MODULE, CONFIG),
        problems_taken(source, CONFIG),
    ):
        assert everything(problems) == everything(source)


def test_the_problems_that_a_model_takes(monkeypatch):
    monkeypatch.setattr(problem_lengths, "_PROBLEMS_AT_ONCE", 2)
    short = [(str(number), "1") for number in range(4)]
    long = [("123456", "1"), ("1", "123"), ("123456", "123")]
    # On both sides of where the parts meet that are looked at together.
    mixed = source_of(long[0], short[0], short[1], long[1], long[2], *short[2:])
    assert everything(problems_taken(mixed, CONFIG)) == everything(
        source_of(*short)
    )
    assert len(problems_taken(source_of(*long), CONFIG)) == 0
    only_short = source_of(*short)
    assert problems_taken(only_short, CONFIG) is only_short


def test_the_longest_question_decides(
    tiny_config, tiny_training, longest_question
):
    config = tiny_config.replace(max_question_length=longest_question)
    assert len(ProblemTask(config, tiny_training).training) == 580
    config = tiny_config.replace(max_question_length=longest_question - 1)
    with pytest.raises(UsageError, match=f"_length={longest_question}, or"):
        ProblemTask(config, tiny_training)


def test_the_validation_is_looked_at_too(
    tiny_config, tiny_training, longest_question
):
    training = tiny_training.replace(validation_examples=599)
    batches, _ = training_batches(
        training_sources(training), tiny_config, training
    )
    (question,), _ = batches.source.read([0])
    assert len(question) < longest_question
    with pytest.raises(UsageError, match=f"_length={longest_question}, or"):
        ProblemTask(
            tiny_config.replace(max_question_length=len(question)), training
        )


def test_no_folder_is_begun_with_a_model_that_is_too_small(
    tmp_path, simple_config, tiny_training
):
    """For then its configuration could not be mended."""
    config = simple_config.replace(max_question_length=30)
    with pytest.raises(UsageError, match=f"{MODULE}.* the model takes 30"):
        train(config, tiny_training, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_one_that_comes_later(
    monkeypatch, tmp_path, simple_config, tiny_training, longest_question
):
    """A rare one ends a training with the same line, on every backend."""
    # Those that are looked at at first.
    monkeypatch.setattr(problem_batches, "SAMPLED_PROBLEMS", 1)
    limit = longest_question - 1
    config = simple_config.replace(max_question_length=limit)
    training = tiny_training.replace(validation_examples=1)
    message = f"question of {longest_question} .*the model takes {limit}"
    with pytest.raises(UsageError, match=message):
        train(config, training, tmp_path / "model")
    assert (tmp_path / "model").exists()
