"""Ahead-of-time compilation and its cache; of JAX alone."""

import re
import threading

import keras
import numpy as np
import pytest

from tpt_keras.data_generators.batches import Buckets
from tpt_keras.errors import UsageError
from tpt_keras.training.callbacks import NonFiniteLossError
from tpt_keras.training.train import train

if keras.backend.backend() != "jax":
    pytest.skip("of JAX alone", allow_module_level=True)

import jax
from jax import numpy as jnp

from tpt_keras.training.backends.jax_compilation import MAX_CACHE_BYTES
from tpt_keras.training.backends.jax_compilation import CompiledStep
from tpt_keras.training.backends.jax_compilation import keep_programs

pytestmark = pytest.mark.jax


@pytest.fixture
def traced(monkeypatch):
    """The shapes of the steps that are traced, as they are."""
    shapes = []

    def step(state, batch):
        shapes.append(batch.shape)
        return jnp.sum(batch), state + 1

    return step, shapes


def test_first_call_compiles_all_expected_shapes(traced):
    step, shapes = traced
    expected = [jax.ShapeDtypeStruct((4, n), "int32") for n in (2, 3, 5)]
    program = CompiledStep(step, None, lambda: expected)
    _, state = program(jnp.zeros(()), np.ones((4, 3), "int32"))
    assert sorted(shapes) == [(4, 2), (4, 3), (4, 5)]
    for length in (2, 5, 3):
        total, state = program(state, np.ones((4, length), "int32"))
        assert total == 4 * length
    assert len(shapes) == 3
    # A shape that was not expected.
    program(state, np.ones((1, 7), "int32"))
    assert shapes[3:] == [(1, 7)]


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
def test_training_compiles_the_logged_number_of_programs(
    tmp_path, tiny_config, tiny_training, compiled, caplog
):
    caplog.set_level("INFO")
    threads = threading.active_count()
    train(tiny_config, tiny_training, tmp_path)
    logged = [
        int(n) for n in re.findall(r"Compiling (\d+) program", caplog.text)
    ]
    steps = [name for name in compiled if "_step" in name]
    # The training's, and then the evaluation's; in two intervals of each.
    assert len(logged) == 2
    assert steps == (
        ['"jit_train_step"'] * logged[0] + ['"jit_test_step"'] * logged[1]
    )
    assert logged[0] <= 6
    # The prefetching threads have ended.
    assert threading.active_count() == threads


@pytest.mark.slow
@pytest.mark.parametrize("step", [3, 4])
def test_non_finite_loss_is_reported_with_its_step(
    tmp_path, tiny_config, tiny_training, monkeypatch, step
):
    """In the middle of an interval, and at its end."""
    pad, batches = Buckets.pad, []

    def poisoned(self, batch, rows):
        batches.append(batch)
        value = np.nan if len(batches) == step else 1.0
        return *pad(self, batch, rows), np.full(rows, value, "float32")

    monkeypatch.setattr(Buckets, "pad", poisoned)
    monkeypatch.setattr(Buckets, "expected_pairs", lambda *args: [])
    training = tiny_training.replace(
        steps_per_evaluation=4, steps_per_checkpoint=4
    )
    with pytest.raises(NonFiniteLossError) as caught:
        train(tiny_config, training, tmp_path)
    assert caught.value.step == step


@pytest.mark.slow
def test_error_of_a_batch_ends_a_training_unchanged(
    tmp_path, tiny_config, tiny_training, monkeypatch
):
    error = UsageError("Record 7 is damaged.")

    def damaged(*args):
        raise error

    monkeypatch.setattr(Buckets, "pad", damaged)
    with pytest.raises(UsageError) as caught:
        train(tiny_config, tiny_training, tmp_path)
    assert caught.value is error


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user's folder for caches; what the tests have set is set again."""
    names = "jax_compilation_cache_dir", "jax_compilation_cache_max_size"
    values = [getattr(jax.config, name) for name in names]
    jax.config.update(names[0], None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    yield tmp_path
    for name, value in zip(names, values):
        jax.config.update(name, value)


def test_programs_are_kept_in_the_users_cache(home):
    keep_programs()
    folder = home / "tpt_keras" / "programs"
    assert jax.config.jax_compilation_cache_dir == str(folder)
    assert jax.config.jax_compilation_cache_max_size == MAX_CACHE_BYTES
    # A program is trusted.
    assert folder.stat().st_mode & 0o777 == 0o700


def test_what_was_not_written_to_its_end_is_removed(home):
    folder = home / "tpt_keras" / "programs"
    folder.mkdir(parents=True)
    names = {"whole-cache", "whole-atime", "half-cache"}
    for name in names:
        (folder / name).write_bytes(b"12345678")
    keep_programs()
    left = {path.name for path in folder.iterdir()}
    assert left - {".lockfile"} == names - {"half-cache"}


def test_what_the_user_has_set_remains(home):
    jax.config.update("jax_compilation_cache_dir", str(home / "mine"))
    keep_programs()
    assert jax.config.jax_compilation_cache_dir == str(home / "mine")
    assert not list(home.iterdir())


def test_a_cache_that_cannot_be_written_is_none(home):
    (home / "tpt_keras").write_text("no folder")
    keep_programs()
    assert jax.config.jax_compilation_cache_dir is None
