"""Processes that leave Ctrl-C to the one that starts them."""

import contextlib
import signal
import threading


@contextlib.contextmanager
def deaf_children():
    """Processes that are started in here never hear of Ctrl-C.

    A terminal sends it to all of them, and each would print a traceback. What
    they could do themselves would come too late, for Python takes its time to
    start; that the signal is blocked is inherited. Nor is their start itself
    interrupted, for one that waits for the rest of what it is told would print
    a traceback, too: this process gets its signals afterwards.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    came = []
    handlers = {}
    # Only there does Python look at signals; blocked, they come by others.
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            handlers[number] = signal.signal(
                number, lambda number, _: came.append(number)
            )
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number in came:
            signal.raise_signal(number)
