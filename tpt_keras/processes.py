"""Processes that work beside this one, and end with it."""

import concurrent.futures
import contextlib
import multiprocessing
import os
import signal
import threading
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection

from tpt_keras.errors import UsageError


@contextlib.contextmanager
def named_when_killed(field):
    """Turns the death of a process of a pool into a `UsageError`.

    The `field` is that of the number of processes.
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
    # A terminal sends SIGINT to all processes, and each would print a
    # traceback. They inherit that it is blocked.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        pool._launch_processes()
        pool.submit(os.getpid)  # starts the thread that ends them
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    processes = list(pool._processes.values())
    watcher = threading.Thread(
        target=_end_together,
        args=(processes, pool._result_queue._writer),
        daemon=True,
    )
    watcher.start()
    try:
        yield pool
    except BaseException:
        processes[0].terminate()
        raise
    finally:
        # If it waited, it would close what the watcher closes.
        pool.shutdown(wait=False, cancel_futures=True)
        watcher.join()


def _end_together(processes, writer):
    """Ends all processes of a pool once one has ended.

    It may have ended within a message. Python's pool would wait for the rest
    as long as the pipe has a writer.
    """
    connection.wait([process.sentinel for process in processes])
    for process in processes:
        process.terminate()
    writer.close()


def _start(function=None, *args):
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if function:
        function(*args)


def _end_with_parent():
    multiprocessing.parent_process().join()
    os._exit(1)
