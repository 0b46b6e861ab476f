"""Ctrl-C and SIGTERM end a command with one line, wherever it is."""

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from experiments._interruption import Interruption
from tests.conftest import MODULE
from tests.experiments.command import ROOT

GOES_ON = "Interrupted. Give the same command again, and it goes on.\n"


class Started:
    """A command in a process of its own, as a shell starts it.

    Args:
        script: What Python runs.
        *arguments: Its command line.
        folder: Folder for what it prints.
    """

    def __init__(self, script, *arguments, folder):
        self._paths = [folder / name for name in ("stdout", "stderr")]
        with self._paths[0].open("wb") as out, self._paths[1].open("wb") as err:
            self.popen = subprocess.Popen(
                [sys.executable, "-c", script, *map(str, arguments)],
                cwd=ROOT,
                stdout=out,
                stderr=err,
                # As a terminal's Ctrl-C finds it.
                process_group=0,
            )

    @property
    def printed(self):
        return tuple(path.read_text() for path in self._paths)

    def wait_until(self, condition):
        deadline = time.monotonic() + 300
        while not condition():
            assert self.popen.poll() is None, self.printed
            assert time.monotonic() < deadline, self.printed
            time.sleep(0.02)

    def end(self, number=signal.SIGINT, group=True):
        """Sends a signal; returns the exit status."""
        kill = os.killpg if group else os.kill
        kill(self.popen.pid, number)
        return self.popen.wait(60)


@pytest.fixture
def start(tmp_path):
    processes = []

    def start(*arguments):
        processes.append(Started(*arguments, folder=tmp_path))
        return processes[-1]

    yield start
    for process in processes:
        process.popen.kill()
        process.popen.wait()


# The tests may run where Ctrl-C is ignored, which would be inherited.
PROLOGUE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
"""

# What a command may be at.
WORKS = {
    "python": "while True: pass",
    # The interpreter has its turn when that is over.
    "compiled": "hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)",
    "swallowed": """
while True:
    try:
        time.sleep(100)
    except BaseException:
        print("swallowed")
""",
    "another error": """
try:
    time.sleep(100)
except BaseException:
    raise ImportError("of what was interrupted")
""",
    "noise": """
class Noisy:
    def __del__(self):
        raise ValueError("noise")
noisy = Noisy()
time.sleep(100)
""",
    "standard error is closed": """
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
time.sleep(100)
""",
    "an import": """
interruption._unwinding = False
time.sleep(100)
""",
}


def script(work):
    """Says that it has started, works, and says that it ends."""
    body = "\n".join(f"    {line}" for line in work.splitlines())
    return f"""
import hashlib, os, sys, time
from experiments import _interruption

_interruption._GRACE_SECONDS = 0.5

def main():
    print("started", flush=True)
{body}

with _interruption.Interruption("The line.") as interruption:
    interruption.unwinding(main)
print("the end")
"""


@pytest.fixture
def start_script(start):
    def start_script(work, prologue=PROLOGUE):
        process = start(prologue + script(work))
        process.wait_until(lambda: "started" in process.printed[0])
        time.sleep(0.1)
        return process

    return start_script


@pytest.mark.parametrize("work", WORKS)
def test_whatever_it_is_at(start_script, work):
    process = start_script(WORKS[work])
    assert process.end(signal.SIGINT) == 130
    assert process.printed == ("started\n", "The line.\n")


def test_termination(start_script):
    process = start_script("time.sleep(100)")
    assert process.end(signal.SIGTERM, group=False) == 143
    assert process.printed == ("started\n", "The line.\n")


def test_cleaning_up(start_script, tmp_path):
    path = tmp_path / "cleaned_up"
    process = start_script(f"""
try:
    time.sleep(100)
finally:
    time.sleep(0.2)
    open({str(path)!r}, "w").close()
""")
    assert process.end() == 130
    assert path.exists()


def test_a_signal_that_is_handled_otherwise(start_script):
    process = start_script("""
signal.signal(signal.SIGINT, lambda *_: print("handled"))
time.sleep(1)
""")
    assert process.end() == 0
    assert process.printed == ("started\nhandled\nthe end\n", "")


def test_a_signal_that_is_ignored(start_script):
    """As Ctrl-C is by what a shell runs in the background."""
    process = start_script(
        "time.sleep(1)",
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)",
    )
    assert process.end() == 0
    assert process.printed == ("started\nthe end\n", "")


def test_all_is_as_before():
    def what_is_there():
        handlers = [
            signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)
        ]
        return handlers, threading.enumerate(), os.listdir("/dev/fd")

    before = what_is_there()
    with (
        pytest.raises(KeyError),
        Interruption("The line.") as interruption,
    ):
        interruption.unwinding(lambda: {}["missing"])
    assert what_is_there() == before


def command(name):
    """A script that is a command."""
    return (
        PROLOGUE
        + f"""
import runpy
runpy.run_module("experiments.{name}", run_name="__main__", alter_sys=True)
"""
    )


# Sends a signal in the middle of the second checkpoint, before its data has
# its final name.
IN_CHECKPOINT = """
import os
import numpy
save, count = numpy.savez, 0
def interrupted_save(*args, **kwargs):
    global count
    count += 1
    if count == 2:
        os.kill(os.getpid(), signal.SIGINT)
    return save(*args, **kwargs)
numpy.savez = interrupted_save
"""


@pytest.mark.slow
def test_training(start, place_value_data, tmp_path):
    arguments = [
        "--preset=tp_transformer_tiny",
        "--hparams=hidden_dim=16,intermediate_dim=32,num_layers=1,num_heads=2",
        f"--modules={MODULE}",
        f"--data_dir={place_value_data}",
        f"--model_dir={tmp_path / 'model'}",
        "--train_steps=100000",
        "--steps_per_checkpoint=2",
        "--steps_per_evaluation=100000",
        "--validation_examples=20",
        "--batch_size=16",
    ]

    # While TensorFlow is imported.
    process = start(command("train"), *arguments)
    maps = pathlib.Path(f"/proc/{process.popen.pid}/maps")
    process.wait_until(lambda: "tensorflow" in maps.read_text())
    assert process.end() == 130
    assert process.printed == ("", GOES_ON)

    # While a checkpoint is written.
    process = start(PROLOGUE + IN_CHECKPOINT + command("train"), *arguments)
    assert process.popen.wait(300) == 130
    output, errors = process.printed
    # Before it may be TensorFlow's chatter.
    assert errors.endswith(GOES_ON)
    assert "Traceback" not in errors
    assert "Epoch 1/50000" in output

    # While it fits.
    process = start(command("train"), *arguments)
    process.wait_until(lambda: "Epoch 3/50000" in process.printed[0])
    assert process.end(signal.SIGTERM, group=False) == 143
    output, errors = process.printed
    assert errors == GOES_ON
    assert output.startswith("Going on from ")
    assert list((tmp_path / "model" / "checkpoints").glob("ckpt-*.npz"))


@pytest.mark.slow
def test_generation(start, tmp_path):
    """Its workers get the signal, too, from the moment that they start."""
    arguments = [
        f"--modules={MODULE}",
        f"--data_dir={tmp_path / 'data'}",
        "--train_examples=1000000",
        "--num_workers=2",
    ]

    # While workers start; the tracker of the pool's semaphores comes first.
    process = start(command("prepare_data"), *arguments)
    process.wait_until(lambda: len(children(process)) > 1)
    assert_ends_with_its_children(process)

    # While they draw.
    process = start(command("prepare_data"), *arguments)
    process.wait_until(lambda: list(tmp_path.rglob("train_easy-*.json")))
    assert_ends_with_its_children(process)


def children(process):
    """Process ids of a process's children."""
    tasks = pathlib.Path(f"/proc/{process.popen.pid}/task")
    return [
        int(child)
        for path in tasks.glob("*/children")
        for child in path.read_text().split()
    ]


def assert_ends_with_its_children(process):
    workers = children(process)
    assert process.end() == 130
    assert process.printed == ("", GOES_ON)
    deadline = time.monotonic() + 30
    while any(is_alive(worker) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_alive(pid):
    try:
        # That of a process which has ended and was not waited for is empty.
        return bool(pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False
