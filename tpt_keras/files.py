"""Files that are whole or not there, and folders that one process works in."""

import atexit
import contextlib
import functools
import os
import pathlib
import shutil
import tempfile
import uuid

import filelock

from tpt_keras.errors import UsageError

PARTIAL = "partial-"
LOCK_FILE = ".lock"


@contextlib.contextmanager
def whole_file(path, sync=True):
    """Writes a file that is there under its name only when it is whole.

    It is written beside its place, on the disk before it is renamed, and
    gone where writing it failed. A process that is killed may leave it, under
    a name that starts with `PARTIAL`, which nobody reads.

    Args:
        path: The file. Its folder has to be there.
        sync: Whether to wait until it is on the disk. Without, a loss of power
            may leave a damaged file under its name: for the many small ones
            whose reader notices and makes them again.

    Yields:
        Path to write to, with the suffix of `path`.

    Raises:
        OSError: If it cannot be written, with its name.

    Example:

    ```python
    with whole_file(folder / "config.json") as partial:
        partial.write_text(json.dumps(config))
    ```
    """
    path = pathlib.Path(path)
    # Of this call alone: other threads and processes may write the same.
    partial = path.with_name(f"{PARTIAL}{uuid.uuid4().hex[:8]}-{path.name}")
    try:
        with named_in_errors(path):
            yield partial
            if sync:
                with partial.open("rb") as file:
                    os.fsync(file.fileno())
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(path):
    """Makes a folder that is there under its name only when it is whole.

    For who has the lock of the folder above: what a killed process left there
    goes, and so does what was written where writing failed.

    Args:
        path: The folder.

    Yields:
        Path of the folder to make and to fill.
    """
    partial = path.with_name("partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        yield partial
        partial.rename(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextlib.contextmanager
def named_in_errors(path):
    """Names a file in an `OSError` without a name, as that of a write is.

    Args:
        path: The file.
    """
    try:
        yield
    except OSError as error:
        # One without a number, as libraries raise, would lose its message.
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def remove_partial(path):
    """Removes what killed processes left of writing a file.

    For who knows that nobody writes it now.

    Args:
        path: The file, as `whole_file` takes it.
    """
    path = pathlib.Path(path)
    for partial in path.parent.glob(f"{PARTIAL}*"):
        # A hexadecimal number stands between.
        if partial.name[len(PARTIAL) + 9 :] == path.name:
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def folder_lock(folder, work):
    """Keeps other processes from the same work in a folder.

    The lock is the operating system's and ends with its process, however that
    ends.

    Args:
        folder: The folder; made where it is not there.
        work: What is done in it, for the message: `"trains"`.

    Raises:
        UsageError: If somebody else has the lock.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / LOCK_FILE, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        raise UsageError(
            f"Another process {work} in the folder {str(folder)!r} already. "
            "Wait until it ends, or take another folder."
        ) from None
    try:
        yield
    finally:
        lock.release()


def plain_path(folder):
    """A path to a folder that TensorFlow does not take for a pattern.

    It looks for checkpoints, its own to restore and older ones to delete, by
    patterns: in a folder named `run[1]` it finds none, and from one named
    `run*` it deletes those of `run1`.

    Args:
        folder: The folder, there already or not.

    Returns:
        The folder's path, or that of a link to it where its own has a
        character of patterns. The link is gone when the process ends.
    """
    folder = pathlib.Path(folder).absolute()
    return _link(folder) if is_pattern(folder) else folder


def is_pattern(path):
    """Whether a path has a character that TensorFlow's patterns have.

    Args:
        path: The path.
    """
    return not set("*?[\\").isdisjoint(str(path))


@functools.cache
def _link(folder):
    link = pathlib.Path(tempfile.mkdtemp(), "folder")
    atexit.register(shutil.rmtree, link.parent, ignore_errors=True)
    link.symlink_to(folder, target_is_directory=True)
    return link
