import math

from tpt_keras.training.train import TrainingResult


def test_the_best_is_the_first_of_equal_ones():
    scores = [None, 0.5, math.nan, 0.75, 0.75, 0.25]
    history = [
        {"step": 10 * index}
        | ({} if score is None else {"val_sequence_accuracy": score})
        for index, score in enumerate(scores)
    ]
    result = TrainingResult(None, history)
    assert (result.best_score, result.best_step) == (0.75, 30)


def test_without_an_evaluation():
    result = TrainingResult(None, [{"step": 10, "loss": 1.0}])
    assert math.isnan(result.best_score)
    assert result.best_step == 0
