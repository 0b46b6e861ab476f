"""Errors that the user can mend become one line; defects do not."""

import errno
import os
import resource
import signal

import pytest
import tensorflow as tf

from experiments._faults import line_of
from tests.experiments.command import assert_refused
from tpt_keras.errors import UnreadableFileError
from tpt_keras.errors import UsageError


@pytest.fixture
def small_files():
    """As a full disk, but without the rights that one takes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


def test_full_disk(run, trained_model_dir, tmp_path, small_files):
    result = run(
        "compare",
        f"--model_dirs={trained_model_dir}",
        f"--output={tmp_path / 'curves.png'}",
    )
    assert_refused(result, tmp_path, os.strerror(errno.EFBIG))
    assert not list(tmp_path.iterdir())


def through_tensorflow(error):
    """The error that tf.data makes of one in a generator."""

    def generator():
        yield 1
        raise error

    dataset = tf.data.Dataset.from_generator(
        generator, output_signature=tf.TensorSpec((), tf.int32)
    )
    with pytest.raises(tf.errors.OpError) as caught:
        list(dataset)
    return caught.value


@pytest.mark.parametrize("through", [lambda error: error, through_tensorflow])
def test_error_keeps_its_line(through):
    for error in (
        UsageError("The file 'a' is damaged."),
        UnreadableFileError("The file 'a' is damaged.", path="a"),
    ):
        assert line_of(through(error)) == str(error)
    line = line_of(through(OSError(errno.EIO, os.strerror(errno.EIO), "a")))
    assert "[Errno 5] Input/output error: 'a'" in line
    assert "\n" not in line
    assert line_of(through(KeyError("Permission"))) is None


@pytest.mark.parametrize(
    "error",
    [
        tf.errors.ResourceExhaustedError(
            None, None, "{{node}} /a/ckpt-1; No space left on device [Op:Save]"
        ),
        # HDF5's, with the number in its text alone.
        OSError("Can't write data (errno = 28, 'No space left on device')"),
    ],
)
def test_full_disk_of_a_library_is_one_line(error):
    assert "No space left on device" in line_of(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("No such file or directory"),
        OSError(errno.EBADF, os.strerror(errno.EBADF)),
        OSError("without a number"),
        RuntimeError("something\nTraceback\nPermission denied"),
        tf.errors.ResourceExhaustedError(None, None, "OOM"),
    ],
)
def test_defect_is_no_line(error):
    assert line_of(error) is None
