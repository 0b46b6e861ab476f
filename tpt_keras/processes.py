"""Processes that work beside this one, and end with it."""

import concurrent.futures
import contextlib
import multiprocessing
import os
import signal
import threading
from concurrent.futures.process import BrokenProcessPool

from tpt_keras.errors import UsageError


@contextlib.contextmanager
def named_when_killed(field):
    """Turns the death of a process of a pool into a `UsageError`.

    Args:
        field: Name of the flag for the number of processes.
    """
    try:
        yield
    except BrokenProcessPool as error:
        raise UsageError(
            "A process ended before its work, perhaps killed for lack of "
            f"memory. Start again with a smaller `{field}`. A script of your "
            'own has to start them below `if __name__ == "__main__":`.',
            field=field,
        ) from error


def available_cores():
    """Returns the number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):  # on Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def spawned_pool(num_processes, *initial):
    """Makes a pool of processes that end with this one.

    They are spawned, because TensorFlow does not survive a fork. `initial` is
    a function that each calls first, and its arguments, if any.
    """
    return concurrent.futures.ProcessPoolExecutor(
        num_processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start,
        initargs=initial,
    )


def _start(function=None, *args):
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if function:
        function(*args)


def _end_with_parent():
    multiprocessing.parent_process().join()
    os._exit(1)


@contextlib.contextmanager
def sigint_blocked():
    """Lets processes that start inherit a blocked SIGINT.

    A terminal sends it to all of them, and each would print a traceback.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
