import keras
import numpy as np
import pytest

if keras.backend.backend() != "torch":
    pytest.skip("of PyTorch alone", allow_module_level=True)

import torch

from tests.refusals import refused
from tpt_keras.models import Transformer
from tpt_keras.training.backends import CurrentBackend
from tpt_keras.training.backends import make_strategy
from tpt_keras.training.optimizers import PyTorchAdam
from tpt_keras.training.trainer import Trainer

pytestmark = pytest.mark.torch

RNG = np.random.default_rng(0)
IDS = np.where(
    np.arange(6) < RNG.integers(2, 7, (5, 1)), RNG.integers(3, 70, (5, 6)), 0
)
BATCH = (
    {"encoder_token_ids": IDS, "decoder_token_ids": IDS[:, :-1]},
    IDS[:, 1:],
)


def new_trainer(config, optimizer="sgd", **kwargs):
    keras.utils.set_random_seed(5)
    trainer = Trainer(Transformer(config), **kwargs)
    trainer.compile(keras.optimizers.get(optimizer))
    return trainer


def steps_of(trainer, count=3):
    """The metrics after steps of one batch, and the weights."""
    history = trainer.fit(
        *BATCH, batch_size=5, epochs=count, shuffle=False, verbose=0
    )
    return history.history, trainer.model.get_weights()


def assert_close(ours, expected, **kwargs):
    keras.tree.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, **kwargs), ours, expected
    )


# More micro-batches than rows are as many as the rows.
@pytest.mark.parametrize("micro_batches", [2, 9])
def test_micro_batches_learn_what_the_batch_does(tiny_config, micro_batches):
    whole = new_trainer(tiny_config)
    parts = new_trainer(tiny_config, gradient_accumulation_steps=micro_batches)
    assert_close(steps_of(parts), steps_of(whole), rtol=1e-5, atol=1e-6)


def test_a_step_is_that_of_pytorchs_adam(tiny_config):
    adam = {"beta_2": 0.995, "epsilon": 1e-3}
    trainer = new_trainer(
        tiny_config, PyTorchAdam(0.01, **adam), global_clipnorm=0.1
    )
    model = new_trainer(tiny_config).model
    values = [variable.value for variable in model.trainable_variables]
    optimizer = torch.optim.Adam(values, 0.01, (0.9, 0.995), 1e-3)
    inputs, targets = BATCH
    targets = torch.as_tensor(targets)
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(
            model(inputs).transpose(1, 2), targets, ignore_index=0
        ).backward()
        torch.nn.utils.clip_grad_norm_(values, 0.1)
        optimizer.step()
    _, weights = steps_of(trainer)
    assert_close(weights, model.get_weights(), atol=1e-5)


def test_dropout_depends_on_the_seed_and_the_step(tiny_config):
    config = tiny_config.replace(dropout=0.5)

    def losses(drawn):
        trainer = new_trainer(config, keras.optimizers.SGD(0.0))
        torch.rand(drawn)  # by something else, before the training
        return steps_of(trainer)[0]["loss"]

    found = losses(0)
    assert len(set(found)) == 3
    assert losses(7) == found


def test_a_training_has_one_device():
    for arguments in ({}, {"distribution": "none"}, {"logical_cpus": 1}):
        backend = CurrentBackend(make_strategy(**arguments))
        assert backend.num_replicas == 1
        assert backend.broadcast(7) == 7
    for field, value in (
        ("distribution", "mirrored"),
        ("num_gpus", 99),
        ("logical_cpus", 2),
    ):
        with refused(field):
            make_strategy(**{field: value})
