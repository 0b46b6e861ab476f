"""Files that are whole or not there, and folders that one process works in."""

import contextlib
import os
import pathlib
import uuid

import filelock

from tpt_keras.errors import UsageError

PARTIAL = "partial-"
LOCK_FILE = ".lock"


@contextlib.contextmanager
def whole_file(path):
    """Writes a file that is there under its name only when it is whole.

    It is written beside its place, on the disk before it is renamed, and
    gone where writing it failed. A process that is killed may leave it, under
    a name that starts with `PARTIAL`, which nobody reads.

    Args:
        path: The file. Its folder has to be there.

    Yields:
        Path to write to, with the suffix of `path`.

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
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
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
