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


@contextlib.contextmanager
def spawned_pool(num_processes, *initial):
    """Opens a pool of processes that end with this one.

    They are spawned, because TensorFlow does not survive a fork. `initial` is
    a function that each calls first, and its arguments, if any. When the scope
    ends, work that has not begun is cancelled; after an exception, such as a
    `KeyboardInterrupt`, no work is finished.
    """
    pool = concurrent.futures.ProcessPoolExecutor(
        num_processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start,
        initargs=initial,
    )
    try:
        # A terminal sends SIGINT to all processes, and each would print a
        # traceback. They start now, one for each task while none is idle, and
        # inherit that it is blocked.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for _ in range(num_processes):
                pool.submit(os.getpid)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield pool
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _start(function=None, *args):
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if function:
        function(*args)


def _end_with_parent():
    multiprocessing.parent_process().join()
    os._exit(1)
