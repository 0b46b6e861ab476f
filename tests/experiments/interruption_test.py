"""Ctrl-C and SIGTERM end a command with one line and their status."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import MODULE
from tests.experiments.command import ROOT
from tests.training.trainings import SIMPLE_MODEL
from tests.training.trainings import flags_of
from tpt_keras.training.state.logs import read_metrics


class Command:
    """A Python script in a process of its own, as a shell starts it."""

    def __init__(self, folder, script, *arguments, **env):
        self._paths = [folder / name for name in ("stdout", "stderr")]
        # The tests may run where Ctrl-C is ignored, which is inherited.
        script = (
            "import signal\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            f"{script}"
        )
        with self._paths[0].open("wb") as out, self._paths[1].open("wb") as err:
            self.popen = subprocess.Popen(
                [sys.executable, "-c", script, *map(str, arguments)],
                cwd=ROOT,
                env={**os.environ, **env},
                stdout=out,
                stderr=err,
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

    def end(self, number):
        """Sends a signal as a terminal does; returns the exit status."""
        os.killpg(self.popen.pid, number)
        return self.popen.wait(60)

    def children(self):
        tasks = pathlib.Path(f"/proc/{self.popen.pid}/task")
        return [
            int(child)
            for path in tasks.glob("*/children")
            for child in path.read_text().split()
        ]


@pytest.fixture
def start(tmp_path):
    started = []

    def start(script, *arguments, **env):
        started.append(Command(tmp_path, script, *arguments, **env))
        return started[-1]

    yield start
    for command in started:
        command.popen.kill()
        command.popen.wait()


SCRIPT = """
import sys, time
from experiments import _cli
def main():
    print("started")
    try:
        time.sleep(100)
    {handling}
_cli.run(main, resumes=True)
"""


@pytest.mark.parametrize(
    ("handling", "number"),
    [
        ("finally: print('cleaned up')", signal.SIGINT),
        # As TensorFlow does with an exception of Python that it called.
        (
            "except BaseException: raise ImportError('cleaned up')",
            signal.SIGTERM,
        ),
        ("except BaseException: pass", signal.SIGINT),
    ],
    ids=["cleans up", "raises another error", "swallows"],
)
def test_signal_ends_a_command_with_its_status(start, handling, number):
    command = start(SCRIPT.format(handling=handling), KERAS_BACKEND="jax")
    command.wait_until(lambda: "started" in command.printed[0])
    assert command.end(number) == 128 + number
    output, errors = command.printed
    assert output.startswith("started\n")
    assert errors.count("\n") == 1


CALLBACK = """
def callback(phase, info):
    if phase == "start":
        gc.callbacks.remove(callback)
        interrupt()

gc.callbacks.append(callback)
gc.collect()
"""
DESTRUCTOR = """
class Closing:
    def __del__(self):
        interrupt()

Closing()
"""


@pytest.mark.parametrize("code", [CALLBACK, DESTRUCTOR])
def test_signal_is_not_lost_where_python_drops_exceptions(start, code):
    command = start(
        f"""
import gc, os, signal, time
from experiments import _cli

def interrupt():
    os.kill(os.getpid(), signal.SIGTERM)
    # Python handles it before the next line.
    time.sleep(0.1)

def main():
    exec({code!r}, globals())
    time.sleep(100)

_cli.run(main, resumes=True)
""",
        KERAS_BACKEND="jax",
    )
    assert command.popen.wait(60) == 143
    assert command.printed[1].count("\n") == 1


def test_signal_ends_the_import_of_tensorflow(start, tmp_path):
    (tmp_path / "tensorflow.py").write_text(
        "import time\nprint('importing')\ntime.sleep(100)"
    )
    command = start(
        SCRIPT.format(handling="finally: pass"),
        KERAS_BACKEND="tensorflow",
        PYTHONPATH=f"{tmp_path}:{ROOT}",
    )
    command.wait_until(lambda: "importing" in command.printed[0])
    # Killed by the signal: a shell's status is 130.
    assert command.end(signal.SIGINT) == -signal.SIGINT
    assert command.printed[1] == ""


RUN = """
import runpy
runpy.run_module("experiments.{}", run_name="__main__", alter_sys=True)
"""


@pytest.mark.slow
def test_signal_ends_all_processes_of_a_generation(start, tmp_path):
    command = start(
        RUN.format("prepare_data"),
        f"--modules={MODULE}",
        f"--data_dir={tmp_path / 'data'}",
        "--train_examples=1000000",
        "--num_workers=2",
    )
    command.wait_until(lambda: list(tmp_path.rglob("*train_easy*")))
    children = command.children()
    assert children
    assert command.end(signal.SIGINT) == 130
    assert command.printed[1].count("\n") == 1
    wait_for_end(children)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "number", "status"),
    [
        ("tensorflow", signal.SIGINT, 130),
        ("tensorflow", signal.SIGKILL, -signal.SIGKILL),
        ("jax", signal.SIGTERM, 143),
    ],
)
def test_end_of_a_training_ends_its_drawing(
    start, tmp_path, backend, number, status
):
    command = start(
        RUN.format("train"),
        *SIMPLE_MODEL,
        *flags_of(
            tmp_path / "data",
            tmp_path / "model",
            dataset="mathematics_stream",
            dataset_options="evaluation_problems=8,validation_problems=60",
            generator_processes=2,
            batch_size=64,
            validation_examples=20,
            steps_per_checkpoint=2,
        ),
        KERAS_BACKEND=backend,
    )
    command.wait_until(lambda: read_metrics(tmp_path / "model"))
    children = command.children()
    assert len(children) >= 2
    # A terminal sends a signal to all processes, `kill` to one.
    send = os.killpg if number == signal.SIGINT else os.kill
    send(command.popen.pid, number)
    assert command.popen.wait(60) == status
    if status > 0:
        assert command.printed[1].count("\n") == 1
    wait_for_end(children)


def wait_for_end(processes):
    deadline = time.monotonic() + 30
    while any(map(is_alive, processes)):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_alive(pid):
    try:
        # A zombie's is empty.
        return bool(pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False
