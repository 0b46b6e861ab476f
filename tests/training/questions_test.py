import os
import pathlib
from collections import Counter

import numpy as np
import pytest

from tests.conftest import MODULE
from tests.data_generators.files import all_texts
from tpt_keras.data_generators import open_task
from tpt_keras.decoding import Generator
from tpt_keras.training.questions import evaluate
from tpt_keras.training.trainer import Trainer

FILES = pathlib.Path("/proc/self/fd")


def stored_problems(data_dir, split):
    """The questions and the answers of a split."""
    return zip(*all_texts(task(data_dir).examples(split)[MODULE]))


@pytest.fixture
def trainer(trained_model):
    trainer = Trainer(trained_model)
    trainer.compile(jit_compile=False)
    return trainer


def task(data_dir):
    return open_task("mathematics_dataset", data_dir, [MODULE])


def interpolation(trainer, data_dir, **kwargs):
    """The numbers of one split."""
    (result,) = evaluate(trainer, task(data_dir), ["interpolate"], **kwargs)
    return {k: v for k, v in result.items() if k not in ("module", "split")}


@pytest.mark.slow
def test_counts_every_problem_once(trainer, place_value_data):
    """The accuracy is what counting the model's own answers gives."""
    splits = ["extrapolate", "interpolate"]
    in_small_batches, in_one = (
        evaluate(trainer, task(place_value_data), splits, batch_size)
        for batch_size in (7, 60)
    )
    accuracies = set()
    for split, *results in zip(splits, in_small_batches, in_one, strict=True):
        questions, answers = stored_problems(place_value_data, split)
        given = trainer.model.solve(questions)
        right = np.mean([g == a for g, a in zip(given, answers)])
        accuracies.add(right)
        for result in results:
            assert result["split"] == split
            assert result["module"] == MODULE
            assert result["examples"] == len(questions)
            assert result["sequence_accuracy"] == pytest.approx(right)
            assert 0.0 < result["loss"] < 10.0
    # Else any one number would do.
    assert len(accuracies) > 1
    assert max(accuracies) > 0.0


@pytest.mark.slow
def test_some_of_the_problems(trainer, place_value_data):
    """Always the same ones, and no more than there are."""
    few, same, all_, beyond = (
        interpolation(
            trainer,
            place_value_data,
            batch_size=size,
            max_examples=max_examples,
        )
        for size, max_examples in ((7, 17), (17, 17), (60, None), (60, 1000))
    )
    assert (few["examples"], all_["examples"]) == (17, 60)
    assert 0.0 < few["token_accuracy"] < 1.0
    # Sizes of batches differ in the last: a mean of means would, too.
    assert few == pytest.approx(same, rel=1e-5)
    assert few["loss"] != pytest.approx(all_["loss"], rel=1e-3)
    assert beyond == all_


def test_what_a_model_cannot_take_it_does_not_answer(
    trained_model, place_value_data, trainer
):
    """As `solve` has it."""
    questions, answers = stored_problems(place_value_data, "interpolate")
    limit = int(np.median(list(map(len, questions))))
    trained_model.config = trained_model.config.replace(
        max_question_length=limit
    )
    given = Generator(trained_model).answer(questions)
    too_long = sum(len(question) > limit for question in questions)
    right = np.mean([g.text == a for g, a in zip(given, answers)])
    assert 0 < too_long < 60
    assert right > 0.0
    result = interpolation(trainer, place_value_data)
    assert (result["examples"], result["unread"]) == (60, too_long)
    assert result["sequence_accuracy"] == pytest.approx(right)
    trained_model.config = trained_model.config.replace(
        max_question_length=min(map(len, questions)) - 1
    )
    assert interpolation(trainer, place_value_data) == {
        "examples": 60,
        "unread": 60,
        "sequence_accuracy": 0.0,
        "token_accuracy": None,
        "loss": None,
    }


@pytest.mark.slow
def test_no_file_stays_open(trainer, place_value_data):
    """A training evaluates hundreds of times."""
    place_value = task(place_value_data)

    def open_files():
        return Counter(os.path.realpath(path) for path in FILES.iterdir())

    def evaluate_once():
        evaluate(trainer, place_value, batch_size=60, max_examples=1)

    evaluate_once()
    once = open_files()
    evaluate_once()
    assert open_files() == once
