"""Which programs a training on JAX compiles, and when."""

import re
import threading
import types

import keras
import numpy as np
import pytest

from tpt_keras.errors import UsageError
from tpt_keras.training.finite_loss import NonFiniteLossError
from tpt_keras.training.train import train
from tpt_keras.training.transformer_trainer import TransformerTrainer

if keras.backend.backend() != "jax":
    pytest.skip("of JAX alone", allow_module_level=True)

import jax
from jax import numpy as jnp

from tpt_keras.training import jax_programs
from tpt_keras.training.jax_programs import JaxPrograms


@pytest.fixture
def traced(monkeypatch):
    """The shapes of the steps that are traced, as they are."""
    shapes = []

    def step(state, batch):
        shapes.append(batch.shape)
        return jnp.sum(batch), state + 1

    return jax.jit(step, donate_argnums=0), shapes


def test_all_that_come_are_compiled_when_the_first_is_called(
    traced, capsys, monkeypatch
):
    # How long it takes is the machine's business.
    clock = types.SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(jax_programs, "time", clock)
    step, shapes = traced
    to_come = [jax.ShapeDtypeStruct((4, n), "int32") for n in (2, 3, 5)]
    programs = JaxPrograms(step, lambda: to_come)
    _, state = programs(jnp.zeros(()), np.ones((4, 3), "int32"))
    assert sorted(shapes) == [(4, 2), (4, 3), (4, 5)]
    printed = capsys.readouterr().out
    assert "Compiling 3 programs for batches of 4 x 3, 4 x 2, 4 x 5." in printed
    assert "3 of 3 are ready after 0 s." in printed
    for length in (2, 5, 3):
        total, state = programs(state, np.ones((4, length), "int32"))
        assert total == 4 * length
    assert len(shapes) == 3
    assert capsys.readouterr().out == ""
    # One that nobody knew of.
    programs(state, np.ones((1, 7), "int32"))
    assert shapes[3:] == [(1, 7)]
    assert (
        "Compiling 1 program for batches of 1 x 7." in capsys.readouterr().out
    )


@pytest.fixture
def compiled(monkeypatch):
    """The names of the programs that JAX compiles, or finds in its cache."""
    names = []
    compile_or_get_cached = jax._src.compiler.compile_or_get_cached

    def record(backend, computation, *args, **kwargs):
        names.append(str(computation.operation.attributes["sym_name"]))
        return compile_or_get_cached(backend, computation, *args, **kwargs)

    monkeypatch.setattr(jax._src.compiler, "compile_or_get_cached", record)
    return names


@pytest.mark.slow
def test_a_training_compiles_what_it_says_and_nothing_behind_it(
    tmp_path, tiny_config, tiny_training, compiled, capsys
):
    threads = threading.active_count()
    train(tiny_config, tiny_training, tmp_path)
    printed = capsys.readouterr().out
    said = [int(n) for n in re.findall(r"Compiling (\d+) program", printed)]
    steps = [name for name in compiled if "_step" in name]
    # The training's, and then the evaluation's; in two intervals of each.
    assert len(said) == 2
    assert (
        steps == ['"jit_train_step"'] * said[0] + ['"jit_test_step"'] * said[1]
    )
    assert said[0] <= 6
    # Those that made batches ahead have ended.
    assert threading.active_count() == threads


@pytest.mark.slow
@pytest.mark.parametrize("step", [3, 4])
def test_a_loss_that_is_not_finite_is_that_of_its_step(
    tmp_path, tiny_config, tiny_training, monkeypatch, step
):
    """In the middle of an interval, and at its end."""
    in_few_shapes = TransformerTrainer._in_few_shapes
    made = 0

    def poisoned(self, batch, rows):
        nonlocal made
        made += 1
        inputs, targets = in_few_shapes(self, batch, rows)
        weight = np.full(rows, np.nan if made == step else 1.0, "float32")
        return inputs, targets, weight

    monkeypatch.setattr(TransformerTrainer, "_in_few_shapes", poisoned)
    monkeypatch.setattr(
        TransformerTrainer, "_of_known_shapes", lambda *args: ()
    )
    training = tiny_training.replace(
        steps_per_evaluation=4, steps_per_checkpoint=4
    )
    with pytest.raises(NonFiniteLossError) as caught:
        train(tiny_config, training, tmp_path)
    assert caught.value.step == step


@pytest.mark.slow
def test_a_batch_that_cannot_be_read_ends_a_training_as_it_is(
    tmp_path, tiny_config, tiny_training, monkeypatch
):
    def damaged(*args):
        raise UsageError("Record 7 is damaged.")

    monkeypatch.setattr(TransformerTrainer, "_in_few_shapes", damaged)
    with pytest.raises(UsageError, match=r"^Record 7 is damaged\.$"):
        train(tiny_config, tiny_training, tmp_path)
