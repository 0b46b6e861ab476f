"""Atomic writes, one error for unreadable files, and locks of folders."""

import contextlib
import logging
import os
import pathlib
import shutil
import uuid

from tpt_keras.errors import BusyFolderError
from tpt_keras.errors import UnreadableFileError
from tpt_keras.errors import UsageError

_log = logging.getLogger(__name__)

PARTIAL = "partial-"
LOCK_FILE = ".lock"


@contextlib.contextmanager
def reading(path, advice="", field=None):
    """Turns every exception about a file's content into one error.

    Libraries raise dozens of different exceptions for a damaged file. Keep
    the block short: every exception in it is taken for the file's fault.

    Args:
        path: The file.
        advice: What to do, as a sentence for the error's message.
        field: The field or argument that names the file.

    Raises:
        UnreadableFileError: If the block raises an exception.
    """
    try:
        yield
    except UnreadableFileError:
        raise
    except Exception as error:
        message = (
            f"The file {str(path)!r} cannot be read ({one_line(error)}). "
            f"{advice}"
        )
        raise UnreadableFileError(message.strip(), field, path) from error


def one_line(error):
    """Returns an exception's message in one short line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    # Keras explains an error before it gives the error's message.
    text = str(error).rpartition("Exception encountered: ")[2].strip()
    if isinstance(error, KeyError):  # its message is the key alone
        text = f"{type(error).__name__}: {text}"
    line = (text or type(error).__name__).splitlines()[0]
    return line[:200].rstrip(".")


@contextlib.contextmanager
def whole_file(path, sync=True):
    """Writes a file atomically: it gets its name when it is whole.

    The data is written to a file beside it, flushed to the disk and renamed.
    A killed process may leave a file whose name starts with `PARTIAL`. A
    symbolic link is followed: the file that it points to is replaced.

    Args:
        path: The file. Its folder has to exist.
        sync: Whether to wait until the data is on the disk. Without, a loss of
            power may leave a damaged file.

    Yields:
        Path to write to, with the suffix of `path`.

    Raises:
        OSError: If it cannot be written, with its name.
    """
    path = pathlib.Path(path)
    if path.is_symlink():
        path = path.resolve()
    # The number keeps threads and processes that write the same file apart.
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


def write_text(path, text):
    """Writes a text file in UTF-8, atomically, and its folder if necessary."""
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def whole_folder(path):
    """Makes a folder atomically: it gets its name when it is whole.

    The caller fills the folder that this yields, and has to hold the lock of
    the folder above, because remains of killed processes are removed.
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
    """Adds a file's name to an `OSError` without one."""
    try:
        yield
    except OSError as error:
        # With a name, an error without a number would lose its message.
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def remove_partial(path):
    """Removes the partial files that killed processes left of a file.

    No process may be writing the file.
    """
    path = pathlib.Path(path)
    for partial in path.parent.glob(f"{PARTIAL}*"):
        # A hexadecimal number of eight digits comes between.
        if partial.name[len(PARTIAL) + 9 :] == path.name:
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def folder_lock(folder, work, wait=False):
    """Locks a folder against other processes that do the same work.

    The operating system releases the lock when its process ends in any way. On
    a disk of several machines its server does: the lock is no name of a host.

    Args:
        folder: The folder; created if it does not exist.
        work: The work as a verb, for the message: `"trains"`.
        wait: `True` to wait for a process that holds the lock.

    Raises:
        BusyFolderError: If another process holds the lock, unless `wait`.
    """
    import filelock

    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / LOCK_FILE, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        other = f"Another process {work} in the folder {str(folder)!r}"
        if not wait:
            raise BusyFolderError(
                f"{other} already. Wait until it ends, or take another folder.",
                path=folder,
            ) from None
        _log.info("%s. Waiting until it ends.", other)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def refuse_pattern(folder, field=None):
    """Raises a `UsageError` for a folder that TensorFlow takes for a pattern.

    TensorFlow finds files by patterns: in a folder named `run[1]` it finds
    none.
    """
    if not set("*?[\\").isdisjoint(str(folder)):
        raise UsageError(
            f"The folder {str(folder)!r} has a character of patterns (*, ?, [ "
            "or \\), so that TensorFlow cannot read it. Name another one.",
            field=field,
            path=folder,
        )
