import numpy as np
import pytest
import tensorflow_datasets as tfds

from tests.conftest import MODULE
from tpt_keras.errors import UsageError
from tpt_keras.training.evaluate import evaluate
from tpt_keras.training.train import compile_model


def stored_problems(data_dir, split):
    """A split as plain TensorFlow Datasets reads it."""
    dataset = tfds.load(
        f"mathematics_dataset/{MODULE}", data_dir=data_dir, split=split
    )
    problems = [
        (problem["question"].decode(), problem["answer"].decode())
        for problem in dataset.as_numpy_iterator()
    ]
    return zip(*problems)


@pytest.mark.parametrize("batch_size", [7, 60])
def test_counts_every_problem_once(trained_model, place_value_data, batch_size):
    """The accuracy is what counting the model's own answers gives."""
    compile_model(trained_model)
    splits = ["extrapolate", "interpolate", "train_hard"]
    results = evaluate(
        trained_model, [MODULE], splits, place_value_data, batch_size
    )
    assert [result["split"] for result in results] == splits
    accuracies = set()
    for result in results:
        questions, answers = stored_problems(place_value_data, result["split"])
        given = trained_model.solve(questions)
        right = np.mean([g == a for g, a in zip(given, answers)])
        accuracies.add(right)
        assert result["module"] == MODULE
        assert result["examples"] == len(questions)
        assert result["sequence_accuracy"] == pytest.approx(right)
        assert 0.0 < result["loss"] < 10.0
    # Else any one number would do.
    assert len(accuracies) > 1
    assert max(accuracies) > 0.0


def test_token_accuracy_does_not_depend_on_the_batches(
    trained_model, place_value_data
):
    compile_model(trained_model)
    values = [
        evaluate(
            trained_model, [MODULE], ["interpolate"], place_value_data, size
        )[0]["token_accuracy"]
        for size in (13, 60)
    ]
    assert 0.0 < values[0] < 1.0
    assert values[0] == pytest.approx(values[1])


@pytest.mark.parametrize(
    ("modules", "splits", "message"),
    [
        ([MODULE], ["interpolat"], "Unknown split 'interpolat'"),
        ([MODULE, "numbers__nothing"], ["interpolate"], "Unknown module"),
        (["numbers__gcd"], ["interpolate"], "prepare_data.*numbers__gcd"),
    ],
)
def test_is_refused(trained_model, place_value_data, modules, splits, message):
    with pytest.raises(UsageError, match=message):
        evaluate(trained_model, modules, splits, place_value_data)
