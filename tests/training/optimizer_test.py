import math

import keras
import numpy as np
import pytest

from tpt_keras.training.optimizer import learning_rate_schedule
from tpt_keras.training.optimizer import make_optimizer
from tpt_keras.training.training_config import TrainingConfig


def training_config(**kwargs):
    return TrainingConfig(
        modules=["m"], data_dir="data", **{"train_steps": 100, **kwargs}
    )


def rate(config, step):
    """The learning rate that the optimizer has at a step."""
    optimizer = make_optimizer(config)
    optimizer.iterations.assign(step)
    return float(optimizer.learning_rate)


def test_the_papers_recipe_is_the_default():
    optimizer = make_optimizer(training_config(train_steps=1_000_000))
    assert isinstance(optimizer, keras.optimizers.Adam)
    config = optimizer.get_config()
    expected = {
        "learning_rate": 1e-4,
        "beta_1": 0.9,
        "beta_2": 0.995,
        "epsilon": 1e-8,
        "global_clipnorm": 0.1,
    }
    assert {key: config[key] for key in expected} == pytest.approx(expected)
    # Of the whole gradient, not of every variable's; and nothing besides.
    assert config["clipnorm"] is None
    assert config["clipvalue"] is None
    assert config["weight_decay"] is None
    assert not config["amsgrad"]
    assert not config["use_ema"]


def test_clips_the_norm_of_the_whole_gradient():
    """One step of Adam by hand, on a gradient that is far too long."""
    weights = [np.zeros(2), np.zeros(1)]
    gradients = [np.array([3.0, 0.0]), np.array([1e-6])]
    config = training_config(learning_rate=0.5)
    norm = math.sqrt(sum((g**2).sum() for g in gradients))
    for value, gradient in zip(weights, gradients):
        clipped = gradient * 0.1 / norm
        # At the first step the moments' corrections cancel their decays.
        value -= 0.5 * clipped / (np.abs(clipped) + 1e-8)
    # The small gradient is scaled down too: Adam's epsilon lets it be seen.
    assert -0.45 < weights[1][0] < -0.3
    variables = [keras.Variable(np.zeros(2)), keras.Variable(np.zeros(1))]
    make_optimizer(config).apply(
        [keras.ops.array(g, "float32") for g in gradients], variables
    )
    for variable, value in zip(variables, weights):
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(variable), value, rtol=1e-3
        )


def test_every_value_reaches_the_optimizer():
    values = {"beta_1": 0.8, "beta_2": 0.9, "global_clipnorm": 2.0}
    config = make_optimizer(
        training_config(**values, adam_epsilon=1e-3, learning_rate=0.5)
    ).get_config()
    assert {key: config[key] for key in values} == values
    assert config["epsilon"] == 1e-3
    assert config["learning_rate"] == 0.5


def test_constant():
    assert learning_rate_schedule(training_config(learning_rate=0.25)) == 0.25


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 0.0),
        (1, 0.05),
        (10, 0.5),
        (19, 0.95),
        (20, 1.0),
        (60, 1.0),
        (200, 1.0),
    ],
)
def test_constant_after_warm_up(step, expected):
    config = training_config(learning_rate=1.0, warmup_steps=20)
    assert rate(config, step) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 0.0),
        (10, 1.0),
        (20, 2.0),
        (40, 1 + math.cos(math.pi / 4)),
        (60, 1.0),
        (80, 1 - math.cos(math.pi / 4)),
        (100, 0.0),
        (150, 0.0),
    ],
)
def test_cosine_after_warm_up(step, expected):
    config = training_config(
        learning_rate=2.0, warmup_steps=20, schedule="cosine"
    )
    assert rate(config, step) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, 2.0), (50, 1.0), (75, 1 - math.cos(math.pi / 4)), (100, 0.0)],
)
def test_cosine_alone(step, expected):
    config = training_config(learning_rate=2.0, schedule="cosine")
    assert rate(config, step) == pytest.approx(expected, abs=1e-6)
