"""The interruption of this process, and processes that end with it."""

import concurrent.futures
import contextlib
import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
import traceback
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker

from tpt_keras.errors import UsageError

# Set by a command's first Ctrl-C or SIGTERM.
interrupted = threading.Event()


def raise_if_interrupted():
    """Raises a `KeyboardInterrupt` again that something has dropped.

    Keras drops all errors while it waits for the logs of a step, and Python
    those in a destructor or in a callback of the garbage collector.
    """
    if interrupted.is_set():
        raise KeyboardInterrupt


@contextlib.contextmanager
def named_when_killed(field=None):
    """Turns the death of a process of a pool into a `UsageError`.

    The `field` is that of the number of processes, if there is one.
    """
    try:
        yield
    except BrokenProcessPool as error:
        fewer = f"a smaller `{field}`" if field else "fewer cores (taskset)"
        raise UsageError(
            "A process ended before its work, perhaps killed for lack of "
            f"memory. Start again with {fewer}. A script of your own has to "
            'start them below `if __name__ == "__main__":`.',
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
    ends, work that has not begun is cancelled. An exception in the scope, such
    as a `KeyboardInterrupt`, also ends the work that has begun.

    Each process has a thread and a pipe here. Python's own pool has one pipe
    for all processes, and may wait forever if one is killed within a message.
    """
    main = sys.modules["__main__"]
    if getattr(main, "__file__", None) == "<stdin>":
        main.__file__ = None  # the processes would look for this file
    spawn = multiprocessing.get_context("spawn")
    # The tracker is a process, too, and its start unblocks SIGINT.
    resource_tracker.ensure_running()
    processes, connections = [], []
    threads = concurrent.futures.ThreadPoolExecutor(num_processes)
    try:
        with _sigint_blocked():
            for _ in range(num_processes):
                ours, theirs = spawn.Pipe()
                connections.append(ours)
                process = spawn.Process(
                    target=_work,
                    args=(theirs,),
                    daemon=True,  # Python's exit would wait for it
                )
                process.start()
                processes.append(process)
                theirs.close()  # the pipe ends with the process
        yield _Pool(threads, connections, initial)
        threads.shutdown(cancel_futures=True)
    finally:
        for process in processes:
            process.kill()  # it may have inherited that SIGTERM is ignored
        threads.shutdown(cancel_futures=True)
        for process in processes:
            process.join()
        for connection in connections:
            connection.close()


@contextlib.contextmanager
def _sigint_blocked():
    """Blocks SIGINT, also in the processes that start within the scope.

    A terminal sends the signal to every process, and each would print a
    traceback.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Pool:
    def __init__(self, threads, connections, initial):
        self._threads = threads
        # With the messages that go first. As arguments of a process they would
        # be written at its start, which waits forever if it has died.
        self._idle = queue.SimpleQueue()
        for connection in connections:
            self._idle.put((connection, [initial]))

    def submit(self, function, *args):
        """Returns the future of the function's result in a process."""
        return self._threads.submit(self._call, function, args)

    def _call(self, function, args):
        connection, first = self._idle.get()
        try:
            for message in (*first, (function, *args)):
                connection.send(message)
            result, error = connection.recv()
        except (EOFError, OSError) as ended:
            raise BrokenProcessPool("A process ended.") from ended
        finally:
            self._idle.put((connection, []))
        if error is not None:
            raise error
        return result


def _work(connection):
    threading.Thread(target=end_with_parent, daemon=True).start()
    # The pipe ends with the parent.
    with contextlib.suppress(EOFError, OSError):
        if initial := connection.recv():
            initial[0](*initial[1:])
        while True:
            connection.send_bytes(_reply(*connection.recv()))


def _reply(function, *args):
    """Returns the result or the error of a call, pickled."""
    try:
        return pickle.dumps((function(*args), None))
    except Exception as error:
        error.add_note(traceback.format_exc())
        try:
            return pickle.dumps((None, error))
        except Exception:  # it holds what cannot be pickled
            error = RuntimeError(traceback.format_exc())
            return pickle.dumps((None, error))


def end_with_parent():
    """Ends this process as soon as the one that started it has ended."""
    multiprocessing.parent_process().join()
    os._exit(1)
