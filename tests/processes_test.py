import concurrent.futures
import contextlib
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from concurrent.futures.process import BrokenProcessPool

import pytest

from tests.refusals import refused
from tpt_keras.processes import named_when_killed
from tpt_keras.processes import spawned_pool

# It leaves a pool open, which is the first of its process.
SCRIPT = """
import contextlib, signal, sys
from tpt_keras.processes import spawned_pool

if __name__ == "__main__":
    if sys.argv[1] == "ignored":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stack = contextlib.ExitStack()
    pool = stack.enter_context(spawned_pool(2))
    blocked = signal.pthread_sigmask, signal.SIG_BLOCK, ()
    assert pool.submit(*blocked).result() == {signal.SIGINT}
    if sys.argv[1] == "ignored":
        stack.close()
"""


@pytest.mark.parametrize("seconds", [0, 1])
def test_unused_pool_ends(capfd, seconds):
    with spawned_pool(2):
        time.sleep(seconds)  # its processes may have started
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("killed", [False, True])
def test_pool_ends_within_messages(killed):
    """Its processes write more than the pipe between takes at once."""
    with contextlib.suppress(KeyboardInterrupt), spawned_pool(2) as pool:
        futures = [pool.submit(bytes, 10**6) for _ in range(400)]
        futures[20].result()
        if not killed:
            raise KeyboardInterrupt
        multiprocessing.active_children()[0].kill()
        concurrent.futures.wait(futures)
    # `wait` would wait forever for one that is cancelled.
    assert all(future.done() for future in futures)
    ends = {type(f.exception()) for f in futures if not f.cancelled()}
    assert BrokenProcessPool in ends or not killed
    assert BrokenProcessPool in ends or any(f.cancelled() for f in futures)


@pytest.mark.parametrize(
    ("name", "signal"),
    [("script.py", "default"), ("script.py", "ignored"), ("-", "default")],
)
def test_pool_ends_with_its_process(tmp_path, name, signal):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, name, signal]
    subprocess.run(
        command, cwd=tmp_path, input=SCRIPT, text=True, check=True, timeout=60
    )


def test_death_at_the_start_is_an_error(capfd):
    multiprocessing.set_executable("/bin/false")
    try:
        with spawned_pool(1, len, bytes(10**6)) as pool:
            assert isinstance(
                pool.submit(abs, -1).exception(), BrokenProcessPool
            )
    finally:
        multiprocessing.set_executable(sys.executable)


def raise_lock():
    raise ValueError(threading.Lock())


@pytest.mark.parametrize(
    ("function", "error"), [(raise_lock, RuntimeError), (open, TypeError)]
)
def test_errors_come_from_the_process(function, error):
    with spawned_pool(1) as pool:
        found = pool.submit(function).exception()
        assert type(found) is error
        assert "Traceback" in repr([found, vars(found)])
        assert pool.submit(abs, -1).result() == 1


@pytest.mark.parametrize("field", ["num_workers", None])
def test_death_of_a_process_names_the_flag(field):
    with (
        refused(field),
        named_when_killed(field),
        spawned_pool(1) as pool,
    ):
        pool.submit(os._exit, 1).result()
