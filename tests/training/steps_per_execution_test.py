import keras
import numpy as np
import pytest

from tpt_keras.training.state.logs import read_metrics
from tpt_keras.training.train import train


@pytest.mark.slow
def test_the_same_seed_gives_the_same_whatever_steps_per_execution(
    tmp_path, simple_config, tiny_training
):
    models, metrics = [], []
    for steps in (1, 2):
        # The state of the process before a training must not matter.
        keras.utils.set_random_seed(90 + steps)
        folder = tmp_path / str(steps)
        models.append(
            train(
                simple_config.replace(dropout=0.1),
                tiny_training.replace(
                    evaluation_examples=20, steps_per_execution=steps
                ),
                folder,
            ).model
        )
        metrics.append(
            [
                {k: v for k, v in row.items() if not k.endswith("_per_second")}
                for row in read_metrics(folder)
            ]
        )
    assert metrics[0] == metrics[1]
    for ours, theirs in zip(
        *(model.get_weights() for model in models), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
