import os
import signal
import subprocess
import sys
import threading

import pytest

from tpt_keras.data_generators.deaf_children import deaf_children

IS_BLOCKED = (
    "import signal; "
    "print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))"
)


def is_blocked_in_a_child():
    return eval(subprocess.check_output([sys.executable, "-c", IS_BLOCKED]))


def test_children():
    with deaf_children():
        assert is_blocked_in_a_child()
    assert not is_blocked_in_a_child()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_come_afterwards(number):
    came = []
    before = signal.signal(number, lambda number, _: came.append(number))
    try:
        with deaf_children():
            # To this process, whose other threads do not block it.
            os.kill(os.getpid(), number)
            is_blocked_in_a_child()
            assert not came
        assert came == [number]
        assert signal.getsignal(number) != before
    finally:
        signal.signal(number, before)


def test_in_another_thread():
    """Where Python lets nobody set a handler."""
    found = []

    def work():
        with deaf_children():
            found.append(is_blocked_in_a_child())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [True]
