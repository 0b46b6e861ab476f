import pytest

from tests.conftest import MODULE
from tpt_keras.errors import UsageError
from tpt_keras.training.problem_samples import problem_samples
from tpt_keras.training.training_data import training_batches
from tpt_keras.training.training_data import training_sources


def samples(data_dir, splits, count, dataset="mathematics_dataset"):
    return problem_samples(data_dir, [MODULE], splits, count, dataset)


def test_a_larger_sample_has_the_smaller_one(place_value_data):
    splits = ["train", "interpolate"]
    few, many = (samples(place_value_data, splits, n) for n in (7, 20))
    for key in (("train", MODULE), ("interpolate", MODULE)):
        assert (len(few[key]), len(many[key])) == (7, 20)
        assert set(few[key]) < set(many[key])
    every = samples(place_value_data, splits, 10**6)
    assert len(every["interpolate", MODULE]) == 60


def test_of_the_training_it_is_what_was_learned(
    place_value_data, tiny_config, tiny_training
):
    sources = training_sources(tiny_training)
    _, validation = training_batches(sources, tiny_config, tiny_training)
    apart = {
        problem
        for step in range(validation.steps_per_epoch)
        for problem in zip(
            *validation.source.read(validation.indices(step)), strict=True
        )
    }
    apart = {tuple(text.decode() for text in problem) for problem in apart}
    count = (
        sum(map(len, sources.values())) - tiny_training.data.validation_examples
    )
    found = samples(place_value_data, ["train"], count)["train", MODULE]
    assert len(apart) == tiny_training.data.validation_examples
    assert len(found) == count
    # Generated problems may be there twice, of different indices.
    assert not apart & set(found)


def test_an_unknown_split(place_value_data):
    with pytest.raises(UsageError, match="'tests'"):
        samples(place_value_data, ["tests"], 1)
