"""A disk that is full or may not be written ends a command with one line."""

import contextlib
import errno
import os
import pathlib
import resource
import signal

import numpy as np
import pytest
import tensorflow as tf

from experiments._faults import line_of
from tests.conftest import MODULE
from tests.experiments.command import assert_refused
from tpt_keras.errors import UsageError

TINY = "--hparams=hidden_dim=16,intermediate_dim=32,num_layers=1,num_heads=2"


@contextlib.contextmanager
def no_file_larger_than(size):
    """As a disk that gets full, without the rights that making one takes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def arguments_of(name, trained_model_dir, place_value_data, folder):
    """A command line that writes into a folder."""
    return {
        "compare": [
            f"--model_dirs={trained_model_dir}",
            f"--output={folder / 'curves.png'}",
        ],
        "export": [
            f"--model_dir={trained_model_dir}",
            f"--export_dir={folder / 'exported'}",
        ],
        "prepare_data": [
            f"--modules={MODULE}",
            f"--data_dir={folder / 'data'}",
            "--train_examples=600",
            "--evaluation_examples=60",
            "--num_workers=1",
        ],
        "train": [
            TINY,
            f"--modules={MODULE}",
            f"--data_dir={place_value_data}",
            f"--model_dir={folder / 'model'}",
            "--validation_examples=20",
            "--batch_size=16",
            "--train_steps=2",
        ],
    }[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["compare", "export", "train"])
def test_a_disk_that_is_full(
    run, trained_model_dir, place_value_data, tmp_path, name
):
    arguments = arguments_of(
        name, trained_model_dir, place_value_data, tmp_path
    )
    with no_file_larger_than(1 << 14):
        result = run(name, *arguments)
    assert_refused(result, tmp_path, os.strerror(errno.EFBIG), "Make room")


@pytest.mark.skipif(
    not os.path.isdir("/sys"), reason="needs a folder that nobody can write"
)
@pytest.mark.parametrize("name", ["compare", "export", "prepare_data", "train"])
def test_a_folder_that_may_not_be_written(
    run, trained_model_dir, place_value_data, name
):
    arguments = arguments_of(
        name, trained_model_dir, place_value_data, pathlib.Path("/sys")
    )
    assert_refused(run(name, *arguments), "/sys/", "another")


def through_tensorflow(error):
    """What becomes of an error that a generator raises under tf.data."""

    def generator():
        yield 1
        raise error

    dataset = tf.data.Dataset.from_generator(
        generator, output_signature=tf.TensorSpec((), tf.int32)
    )
    with pytest.raises(tf.errors.OpError) as caught:
        list(dataset)
    return caught.value


def through_keras(error):
    """The same out of `fit`, where the text is another."""
    import keras

    def generator():
        yield np.ones((1, 1)), np.ones((1, 1))
        raise error

    spec = tf.TensorSpec((1, 1))
    dataset = tf.data.Dataset.from_generator(
        generator, output_signature=(spec, spec)
    )
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(loss="mse")
    with pytest.raises(tf.errors.OpError) as caught:
        model.fit(dataset, steps_per_epoch=2, verbose=0, shuffle=False)
    return caught.value


@pytest.mark.parametrize(
    "through", [lambda error: error, through_tensorflow, through_keras]
)
def test_errors_that_come_through_others(through):
    error = UsageError("The file 'a' is damaged. Make it again.")
    assert line_of(through(error)) == str(error)
    error = OSError(errno.EIO, os.strerror(errno.EIO), "a")
    line = line_of(through(error))
    assert "[Errno 5] Input/output error: 'a'. Make room" in line
    assert "\n" not in line
    assert line_of(through(KeyError("Permission"))) is None


def test_tensorflows_own():
    for number in (errno.ENOSPC, errno.EROFS):
        error = tf.errors.ResourceExhaustedError(
            None,
            None,
            "{{function_node __wrapped__SaveV2_device_CPU:0}} /a/ckpt-1; "
            f"{os.strerror(number)} [Op:SaveV2]",
        )
        assert line_of(error).startswith(f"/a/ckpt-1; {os.strerror(number)}. ")
    error = tf.errors.ResourceExhaustedError(
        None, None, "OOM when allocating tensor with shape[1000000000]"
    )
    assert line_of(error) is None


def test_hdf5s_own():
    """It has the number in its text alone."""
    error = OSError(
        "Can't write data (file write failed: time = now, errno = 28, error "
        "message = 'No space left on device', buf = 0x1)"
    )
    assert "No space left on device" in line_of(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("No such file or directory"),
        OSError(errno.EBADF, os.strerror(errno.EBADF)),
        OSError("of no number"),
        RuntimeError("something\nTraceback\nPermission denied"),
    ],
)
def test_a_defect_is_none(error):
    assert line_of(error) is None
