"""Ctrl-C, SIGTERM and a kill end a command and its processes."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from keras.callbacks import LambdaCallback

from experiments import _cli
from tests.experiments.command import ROOT
from tests.experiments.command import run_python
from tests.training.trainings import SIMPLE_MODEL
from tests.training.trainings import flags_of
from tpt_keras.processes import interrupted
from tpt_keras.training.state.logs import read_metrics
from tpt_keras.training.train import train

# The tests may run where Ctrl-C is ignored, which is inherited.
SCRIPT = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("experiments", run_name="__main__", alter_sys=True)
"""


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "number", "status"),
    [
        ("tensorflow", signal.SIGINT, 130),
        ("tensorflow", signal.SIGKILL, -signal.SIGKILL),
        ("jax", signal.SIGTERM, 143),
    ],
)
def test_signal_ends_a_training_and_its_processes(
    tmp_path, backend, number, status
):
    arguments = flags_of(
        tmp_path / "data",
        tmp_path / "model",
        dataset="mathematics_stream",
        dataset_options="evaluation_problems=8,validation_problems=60",
        generator_processes=2,
        batch_size=64,
        validation_examples=20,
        steps_per_checkpoint=2,
        train_minutes=10,
    )
    errors = tmp_path / "stderr"
    with errors.open("wb") as file:
        training = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, "train", *SIMPLE_MODEL, *arguments],
            cwd=ROOT,
            env={**os.environ, "KERAS_BACKEND": backend},
            stderr=file,
            process_group=0,
        )
    try:
        wait_until(
            lambda: (
                training.poll() is not None or read_metrics(tmp_path / "model")
            ),
            300,
        )
        children = children_of(training.pid)
        assert len(children) >= 2
        # A terminal sends a signal to all processes, `kill` to one.
        send = os.killpg if number == signal.SIGINT else os.kill
        send(training.pid, number)
        assert training.wait(60) == status
    finally:
        training.kill()
    if status > 0:
        assert errors.read_text().count("\n") == 1
    wait_until(lambda: not any(map(is_alive, children)), 30)


def test_ctrl_c_at_the_exit_prints_no_traceback():
    raising = "import atexit, signal as s; atexit.register(s.raise_signal, 2)"
    result = run_python("-c", raising + SCRIPT, "solve", "--no_such_flag")
    assert (result.status, result.stderr.count("\n")) == (-signal.SIGINT, 1)


def dropped_in_python(number):
    with contextlib.suppress(BaseException):
        signal.raise_signal(number)


def dropped_in_a_destructor(number):
    type("Dying", (), {"__del__": lambda self: signal.raise_signal(number)})()


@pytest.mark.parametrize(
    ("drop", "number"),
    [
        (dropped_in_python, signal.SIGINT),
        (dropped_in_a_destructor, signal.SIGTERM),
    ],
)
def test_interruption_that_is_dropped_ends_a_training(
    capfd, tmp_path, simple_config, tiny_training, without_graphs, drop, number
):
    def command():
        with _cli._interruptible("Ended."):
            drops = LambdaCallback(on_train_batch_end=dropped)
            train(simple_config, tiny_training, tmp_path, callbacks=[drops])

    def dropped(batch, logs):
        drop(number)
        went_on.append(batch)

    went_on = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(SystemExit) as end:
            command()
    finally:
        signal.signal(signal.SIGINT, before)
    assert (end.value.code, went_on) == (128 + number, [0])
    assert capfd.readouterr().err == "Ended.\n"
    assert not interrupted.is_set()


def children_of(pid):
    return [
        child
        for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children")
        for child in path.read_text().split()
    ]


def is_alive(pid):
    try:
        # A zombie's is empty.
        return bool(pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False
