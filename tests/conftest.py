"""What several folders of tests need and is slow to make."""

import contextlib
import gc
import os
import pathlib
import shutil
import sys

import filelock
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
# XLA's older way to make code for the CPU takes half the time of its newer one.
# TensorFlow would not start with a flag that it does not know.
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


# The files that take longest: twenty seconds of the processor and more.
LONGEST = (
    "training/workers_test.py",
    "tuning/kill_test.py",
    "training/replicas_test.py",
    "training/distributed_fit_test.py",
    "training/kill_test.py",
    "training/without_tensorflow_test.py",
    "models/transformer_test.py",
    "training/trainer_test.py",
    "training/finite_loss_test.py",
    "experiments/chain_test.py",
    "experiments/interruption_test.py",
    "training/train_test.py",
    "serving/export_test.py",
    "models/variants_test.py",
    "training/full_disk_test.py",
    "checkpoints/training_test.py",
    "data_generators/function_dataset_test.py",
    "docs_test.py",
    "experiments/replicate_test.py",
)


# What JAX compiles for so long that it is not for all day there.
SLOW_ON_JAX = (
    "analysis/",
    "checkpoints/",
    "layers/rematerialized_cell_test.py",
    "models/lstm_test.py",
    "models/trained_presets_test.py",
    "models/transformer_test.py",
    "models/transformer_xl_test.py",
)
# And that is not for every change either: TensorFlow has it in CI.
EXHAUSTIVE_ON_JAX = ("analysis/", "checkpoints/")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Begins with what takes longest, or one process ends with it alone."""
    order = {path: place for place, path in enumerate(LONGEST)}
    root = pathlib.Path(__file__).parent
    paths = {item: item.path.relative_to(root).as_posix() for item in items}
    if os.environ.get("KERAS_BACKEND") == "jax":
        for item, path in paths.items():
            if path.startswith(SLOW_ON_JAX):
                item.add_marker(pytest.mark.slow)
            if path.startswith(EXHAUSTIVE_ON_JAX):
                item.add_marker(pytest.mark.exhaustive)
    items.sort(key=lambda item: order.get(paths[item], len(order)))


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


def pytest_runtest_teardown(item, nextitem):
    """Spares it what the tests of a file left, too.

    Keras and keras-tuner collect all garbage again and again, which would take
    a second each time where a thousand tests have left their graphs.
    """
    if nextitem is None or nextitem.path != item.path:
        gc.freeze()


@pytest.fixture(scope="module")
def without_graphs():
    """TensorFlow traces nothing, which takes longer than a few steps.

    For modules whose trainings could compute anything: what a training leaves
    does not depend on it. Graphs are what the others train with.
    """
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """Function that makes a folder once for all workers of pytest-xdist.

    Every worker gets a copy, for its tests may write into it.
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
    # Imported here, for the tests of the layers run without TensorFlow.
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
    """The configuration of a model that a test can afford to train."""
    from tpt_keras.models import PRESETS

    return PRESETS["tp_transformer_tiny"].replace(
        hidden_dim=16, intermediate_dim=32, num_heads=2, num_layers=1
    )


@pytest.fixture(scope="session")
def simple_config():
    """One that takes less than half as long to trace.

    For what a training does whatever it trains.
    """
    from tpt_keras.models import PRESETS

    return PRESETS["lstm"].replace(hidden_dim=16, thinking_steps=1)


@pytest.fixture(scope="session")
def tiny_training(place_value_data):
    """The configuration of a training of two intervals of two steps."""
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
    """The folder of a model that answers some questions right, not all."""
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
    from tpt_keras.models.load_model import load_model

    return load_model(trained_model_dir)


@pytest.fixture(scope="session")
def saved_model(trained_model_dir, made_once):
    """The folder of the versions of `trained_model_dir`, exported: of one."""
    from tpt_keras.models.load_model import load_model
    from tpt_keras.serving.export import export

    def make(folder):
        export(load_model(trained_model_dir), folder)

    return made_once("saved_model", make)
