"""What several folders of tests need and is slow to make."""

import contextlib
import dataclasses
import gc
import os
import pathlib
import sys

import hypothesis
import pytest

# How long an example takes is the machine's business, not the test's.
hypothesis.settings.register_profile("no_deadline", deadline=None)
hypothesis.settings.load_profile("no_deadline")

# Before TensorFlow is imported: its native chatter on standard error.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Before tqdm is: its bars, which a command shows on a terminal alone.
os.environ.setdefault("TQDM_DISABLE", "1")

# Before JAX is: most of the time of its tests would go into compiling small
# programs, which optimizing takes longer than it saves, and which are the same
# in the next run.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR",
    str(pathlib.Path(__file__).parents[1] / ".pytest_cache" / "jax"),
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

MODULE = "numbers__place_value"


def pytest_collection_finish():
    """Spares the garbage collector what lives as long as the process.

    Keras collects garbage for every layer that it quantizes; going through
    TensorFlow's modules each time would take 0.2 s.
    """
    if "keras" in sys.modules:
        with contextlib.suppress(ImportError):
            # As Keras's saving does, on any backend.
            import tensorflow  # noqa: F401
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def place_value_data(tmp_path_factory):
    """A data folder: 600 training and 60 evaluation problems of one module."""
    # Imported here, for the tests of the layers run without TensorFlow.
    from tpt_keras.data_generators import official_text
    from tpt_keras.data_generators.prepared_data import prepare_dataset
    from tpt_keras.data_generators.problem_generation import generate_modules

    data_dir = tmp_path_factory.mktemp("data")
    manual_dir = data_dir / "generated"
    generate_modules(
        [MODULE],
        manual_dir / official_text.FOLDER,
        train_examples=600,
        evaluation_examples=60,
    )
    prepare_dataset(MODULE, data_dir, manual_dir)
    return data_dir


@pytest.fixture
def without_graphs():
    """TensorFlow traces nothing, which takes longer than a single step."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="session")
def tiny_config():
    """The configuration of a model that a test can afford to train."""
    from tpt_keras.models import PRESETS

    return PRESETS["tp_transformer_tiny"].replace(
        hidden_dim=16, intermediate_dim=32, num_heads=2, num_layers=1
    )


@pytest.fixture(scope="session")
def tiny_training(place_value_data):
    """The configuration of a training of two intervals of two steps."""
    from tpt_keras.training.training_config import TrainingConfig

    return TrainingConfig(
        modules=(MODULE,),
        data_dir=str(place_value_data),
        train_steps=4,
        steps_per_evaluation=2,
        batch_size=16,
        validation_examples=20,
        learning_rate=1e-2,
    )


@pytest.fixture(scope="session")
def trained_model_dir(tmp_path_factory, tiny_config, tiny_training):
    """The folder of a model that answers some questions right, not all."""
    from tpt_keras.training.train import train

    model_dir = tmp_path_factory.mktemp("models") / "trained"
    training = dataclasses.replace(
        tiny_training,
        train_steps=60,
        steps_per_evaluation=30,
        batch_size=64,
        global_clipnorm=1.0,
    )
    train(tiny_config, training, model_dir, preset="tp_transformer_tiny")
    return model_dir


@pytest.fixture
def trained_model(trained_model_dir):
    """The model of `trained_model_dir`, loaded afresh."""
    from tpt_keras.models.load_model import load_model

    return load_model(trained_model_dir)


@pytest.fixture(scope="session")
def saved_model(trained_model_dir, tmp_path_factory):
    """The folder of the versions of `trained_model_dir`, exported: of one."""
    from tpt_keras.models.load_model import load_model
    from tpt_keras.serving.export import export

    folder = tmp_path_factory.mktemp("saved_models") / "model"
    export(load_model(trained_model_dir), folder)
    return folder
