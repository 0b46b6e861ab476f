import math

import keras
import numpy as np
import pytest

from tpt_keras.models import Transformer
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.optimizers import PyTorchAdam
from tpt_keras.training.optimizers import learning_rate_in_time
from tpt_keras.training.optimizers import make_optimizer

pytestmark = [pytest.mark.jax, pytest.mark.torch]


def training_config(**kwargs):
    return TrainingConfig.from_flat(
        modules=["m"], data_dir="data", **{"train_steps": 100, **kwargs}
    )


def rate(config, step):
    """The learning rate that the optimizer has at a step."""
    optimizer = make_optimizer(config)
    optimizer.iterations.assign(step)
    return float(optimizer.learning_rate)


def test_the_papers_recipe_is_the_default():
    optimizer = make_optimizer(training_config(train_steps=1_000_000))
    assert isinstance(optimizer, PyTorchAdam)
    config = optimizer.get_config()
    expected = {
        "learning_rate": 1e-4,
        "beta_1": 0.9,
        "beta_2": 0.995,
        "epsilon": 1e-8,
    }
    assert {key: config[key] for key in expected} == pytest.approx(expected)
    # The trainer clips; and nothing besides.
    for name in ("global_clipnorm", "clipnorm", "clipvalue", "weight_decay"):
        assert config[name] is None
    assert not config["amsgrad"]
    assert not config["use_ema"]


def test_epsilon_of_adam_is_added_as_pytorch_does():
    """Of a gradient so small that it matters, in two steps by hand."""
    gradient = np.array([3.0, 3e-8])
    variable = keras.Variable(np.zeros(2), dtype="float32")
    optimizer = make_optimizer(training_config(learning_rate=0.5))
    for step in (1, 2):
        optimizer.apply([keras.ops.array(gradient, "float32")], [variable])
        # The moments' corrections cancel their decays.
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(variable),
            -0.5 * step * gradient / (gradient + 1e-8),
            rtol=1e-3,
        )


@pytest.mark.parametrize(
    ("optimizer", "prefix"), [("adam", ""), ("muon", "adam_")]
)
def test_every_value_reaches_the_optimizer(optimizer, prefix):
    values = {"beta_1": 0.8, "beta_2": 0.9, "weight_decay": 0.25}
    made = make_optimizer(
        training_config(
            **values, adam_epsilon=1e-3, optimizer=optimizer, learning_rate=0.5
        )
    )
    config = made.get_config()
    for name in ("beta_1", "beta_2"):
        assert config[f"{prefix}{name}"] == values[name]
    assert (config["weight_decay"], config["epsilon"]) == (0.25, 1e-3)
    assert config["learning_rate"] == 0.5
    assert config["global_clipnorm"] is None


@pytest.mark.parametrize("name", ["adam", "muon"])
def test_weight_decay_is_the_kernels_alone(tiny_config, name):
    """Without a gradient, it is all that a step does."""
    variables = Transformer(tiny_config).trainable_variables
    before = [np.ones(variable.shape, "float32") for variable in variables]
    for variable, value in zip(variables, before):
        variable.assign(value)
    optimizer = make_optimizer(
        training_config(optimizer=name, learning_rate=0.5, weight_decay=0.1)
    )
    optimizer.apply([keras.ops.zeros(v.shape) for v in variables], variables)
    after = [keras.ops.convert_to_numpy(v).mean() for v in variables]
    decayed = {v.path for v, value in zip(variables, after) if value < 1.0}
    assert decayed == {v.path for v in variables if v.path.endswith("kernel")}
    assert decayed
    for variable, value in zip(variables, after):
        expected = 1.0 - 0.5 * 0.1 if variable.path in decayed else 1.0
        assert value == pytest.approx(expected)
    kept = {variable.path for variable in variables} - decayed
    for part in ("bias", "gamma", "beta", "embeddings"):
        assert any(path.endswith(part) for path in kept), part


COSINE = math.cos(math.pi / 4)


@pytest.mark.parametrize(
    ("schedule", "warmup_steps", "rates"),
    [
        ("constant", 0, {0: 2.0, 150: 2.0}),
        ("constant", 20, {0: 0.0, 1: 0.1, 19: 1.9, 20: 2.0, 200: 2.0}),
        ("cosine", 0, {0: 2.0, 50: 1.0, 75: 1 - COSINE, 100: 0.0}),
        ("cosine", 20, {10: 1.0, 20: 2.0, 40: 1 + COSINE, 60: 1.0, 150: 0.0}),
        ("linear", 0, {0: 2.0, 60: 0.8, 100: 0.0, 150: 0.0}),
        ("linear", 20, {0: 0.0, 20: 2.0, 60: 1.0, 100: 0.0, 150: 0.0}),
    ],
)
def test_rate_follows_the_schedule(schedule, warmup_steps, rates):
    config = training_config(
        learning_rate=2.0, warmup_steps=warmup_steps, schedule=schedule
    )
    for step, expected in rates.items():
        assert rate(config, step) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("schedule", ["constant", "cosine", "linear"])
def test_in_time_the_rate_warms_up_by_steps_and_decays_by_minutes(schedule):
    config = training_config(
        learning_rate=0.5, schedule=schedule, warmup_steps=10, train_minutes=8
    )
    assert make_optimizer(config).get_config()["learning_rate"] == 0.5
    places = [(0, 0.0), (5, 0.0), (10, 0.0), (10, 4.0), (5, 4.0), (99, 8.1)]
    rates = [learning_rate_in_time(config, *place) for place in places]
    decayed = [0.0, 0.25, 0.5, 0.25, 0.125, 0.0]
    constant = [0.0, 0.25, 0.5, 0.5, 0.25, 0.5]
    expected = constant if schedule == "constant" else decayed
    assert rates == pytest.approx(expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.04)]
)
def test_muon_updates_every_map_as_its_matrix(tiny_config, dtype, tolerance):
    """As Keras's does the same kernels one by one, without axes of heads."""
    model = Transformer(tiny_config)
    variables = model.trainable_variables
    kernels = [v for v in variables if v.path.endswith("kernel")]
    rng = np.random.default_rng(0)
    gradients = [rng.normal(size=v.shape).astype("float32") for v in kernels]
    before = [np.array(keras.ops.convert_to_numpy(v)) for v in kernels]
    optimizer = make_optimizer(
        training_config(
            optimizer="muon",
            learning_rate=0.1,
            weight_decay=0.0,
            momentum_warmup_steps=0,
            newton_schulz_dtype=dtype,
        )
    )
    for _ in range(2):
        optimizer.apply(gradients, kernels)
    assert {len(kernel.shape) for kernel in kernels} == {2, 3}
    for kernel, gradient, start in zip(kernels, gradients, before):
        is_output = "output" in kernel.path
        axes = len(kernel.shape) - 1 if is_output else 1
        matrix_shape = (math.prod(kernel.shape[:axes]), -1)
        matrix = keras.Variable(start.reshape(matrix_shape))
        reference = keras.optimizers.Muon(
            0.1, weight_decay=None, adam_weight_decay=None
        )
        for _ in range(2):
            reference.apply([gradient.reshape(matrix_shape)], [matrix])
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(kernel).reshape(matrix.shape),
            keras.ops.convert_to_numpy(matrix),
            atol=tolerance,
        )


@pytest.mark.parametrize(
    ("step", "expected"), [(0, 0.85), (75, 0.875), (300, 0.95), (400, 0.95)]
)
def test_momentum_of_muon_warms_up(step, expected):
    """The average after one step is the gradient and the share kept."""
    optimizer = make_optimizer(training_config(optimizer="muon"))
    kernel = keras.Variable(np.eye(2), dtype="float32", name="kernel")
    optimizer.build([kernel])
    optimizer.iterations.assign(step)
    optimizer.momentums[0].assign(np.ones((2, 2)))
    optimizer.apply([keras.ops.zeros((2, 2))], [kernel])
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(optimizer.momentums[0]), expected, rtol=1e-6
    )


def test_muon_leaves_the_rest_to_adamw(tiny_config):
    variables = Transformer(tiny_config).trainable_variables
    optimizer = make_optimizer(
        training_config(optimizer="muon", beta_1=0.8, beta_2=0.9)
    )
    optimizer.build(variables)
    of_adam = {
        variable.path
        for variable, velocity in zip(variables, optimizer.adam_velocities)
        if velocity is not None
    }
    assert of_adam == {
        v.path for v in variables if not v.path.endswith("kernel")
    }
    assert (optimizer.adam_beta_1, optimizer.adam_beta_2) == (0.8, 0.9)
