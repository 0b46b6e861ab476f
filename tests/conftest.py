"""Fixtures of several folders, and settings that make tests faster."""

import contextlib
import gc
import importlib.metadata
import os
import pathlib
import shutil
import sys

import filelock
import hypothesis
import pytest
from packaging.version import Version

# The time of an example depends on the machine.
hypothesis.settings.register_profile("no_deadline", deadline=None)
hypothesis.settings.load_profile("no_deadline")

# Before TensorFlow is imported: no native messages.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Before tqdm is imported: no progress bars.
os.environ.setdefault("TQDM_DISABLE", "1")

# Before JAX is imported: optimizing the tests' small programs takes longer
# than it saves, and the next run uses the same programs.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
# XLA's older code generator for the CPU takes half the time. jaxlib has it
# before 0.12. Neither starts with a flag that it does not know, nor TensorFlow.
JAX_XLA_FLAGS = ""
with contextlib.suppress(importlib.metadata.PackageNotFoundError):
    if Version(importlib.metadata.version("jaxlib")) < Version("0.12"):
        JAX_XLA_FLAGS = "--xla_cpu_use_fusion_emitters=false"
if os.environ.get("KERAS_BACKEND") == "jax":
    os.environ.setdefault("XLA_FLAGS", JAX_XLA_FLAGS)
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR",
    str(pathlib.Path(__file__).parents[1] / ".pytest_cache" / "jax"),
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

MODULE = "numbers__place_value"


def pytest_collection_modifyitems(items):
    if os.environ.get("KERAS_BACKEND") != "jax":
        return
    for item in items:
        if item.get_closest_marker("slow_on_jax"):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("exhaustive_on_jax"):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.exhaustive)


def pytest_collection_finish():
    """Excludes imported modules from garbage collection.

    Keras collects garbage for every layer that it quantizes. Each time, going
    through TensorFlow's modules takes 0.2 s.
    """
    if "keras" in sys.modules:
        with contextlib.suppress(ImportError):
            # Keras's saving imports it on any backend.
            import tensorflow  # noqa: F401
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown(item, nextitem):
    """Excludes the remains of a file's tests from garbage collection.

    After a thousand tests, each of the collections of Keras and keras-tuner
    would take a second.
    """
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="module")
def without_graphs():
    """Runs TensorFlow eagerly, because tracing takes longer than a few steps.

    For tests of files and messages, which do not depend on the graphs.
    """
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """A function that makes a folder once for all workers of pytest-xdist.

    Every worker gets a copy to write into.
    """
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def made_once(name, make):
        original = shared / f"once_{name}"
        with filelock.FileLock(f"{original}.lock"):
            if not original.exists():
                folder = tmp_path_factory.mktemp("making") / name
                make(folder)
                folder.rename(original)
        return shutil.copytree(original, tmp_path_factory.mktemp(name) / name)

    return made_once


@pytest.fixture(scope="session")
def place_value_data(made_once):
    """A data folder: 600 training and 60 evaluation problems of one module."""
    # Imported here, because the tests of the layers need no TensorFlow.
    from tpt_keras.data_generators.mathematics.archive import FOLDER
    from tpt_keras.data_generators.mathematics.datasets import prepare_dataset
    from tpt_keras.data_generators.mathematics.generator import generate_modules

    def make(data_dir):
        manual_dir = data_dir / "generated"
        generate_modules(
            [MODULE],
            manual_dir / FOLDER,
            train_examples=600,
            evaluation_examples=60,
        )
        prepare_dataset(MODULE, data_dir, manual_dir)

    return made_once("data", make)


@pytest.fixture(scope="session")
def tiny_config():
    """The configuration of a model that trains in seconds."""
    from tpt_keras.models import PRESETS

    return PRESETS["tp_transformer_tiny"].replace(
        hidden_dim=16, intermediate_dim=32, num_heads=2, num_layers=1
    )


@pytest.fixture(scope="session")
def simple_config():
    """A model that takes less than half as long to trace.

    For tests of the training that do not depend on the model.
    """
    from tpt_keras.models import PRESETS

    return PRESETS["lstm"].replace(hidden_dim=16, thinking_steps=1)


@pytest.fixture(scope="session")
def tiny_training(place_value_data):
    """A training of two intervals of two steps."""
    from tpt_keras.training.config import TrainingConfig

    return TrainingConfig.from_flat(
        modules=(MODULE,),
        data_dir=str(place_value_data),
        train_steps=4,
        steps_per_evaluation=2,
        batch_size=16,
        validation_examples=20,
        learning_rate=1e-2,
        evaluation_examples=0,
    )


@pytest.fixture(scope="session")
def trained_model_dir(made_once, tiny_config, tiny_training):
    """The folder of a model that solves some questions, but not all."""
    from tpt_keras.training.train import train

    training = tiny_training.replace(
        train_steps=60,
        steps_per_evaluation=30,
        batch_size=64,
        global_clipnorm=1.0,
        evaluation_examples=200,
    )

    def make(model_dir):
        train(tiny_config, training, model_dir, preset="tp_transformer_tiny")

    return made_once("trained_model", make)


@pytest.fixture
def trained_model(trained_model_dir):
    """The model of `trained_model_dir`, loaded afresh."""
    from tpt_keras.models.stored import load_model

    return load_model(trained_model_dir)


@pytest.fixture(scope="session")
def saved_model(trained_model_dir, made_once):
    """The folder of an export of `trained_model_dir`, with one version."""
    from tpt_keras.models.stored import load_model
    from tpt_keras.serving.export import export

    def make(folder):
        export(load_model(trained_model_dir), folder)

    return made_once("saved_model", make)
