"""Processes that tests start, kill and wait for; none is left behind."""

import contextlib
import json
import multiprocessing
import os
import pathlib
import runpy
import sys
import threading
import time

from tests.experiments.command import ROOT
from tpt_keras.processes import end_with_parent

# A worker whose partner failed waits for it forever: a hang has to fail.
TIMEOUT = 300

# To import TensorFlow and Keras takes five seconds, which a process that is
# forked when they are there does not need. Nothing has used TensorFlow by then.
_forking = multiprocessing.get_context("forkserver")
_forking.set_forkserver_preload(["tpt_keras.training.train"])


class ForkedProcess:
    """`python -m` at the repository's root, less the time of imports.

    Args:
        module: Name of the module to run.
        *arguments: Its command line.
        output: Path of a file for everything that it prints.
        environment: Environment variables, next to those of this process.
        prepare: Function to call in the process first.
    """

    def __init__(
        self, module, *arguments, output, environment=None, prepare=None
    ):
        self._output = pathlib.Path(output)
        self._output.touch()
        arguments = [module, *map(str, arguments)]
        self._process = _forking.Process(
            target=_run,
            args=(arguments, environment or {}, self._output, prepare),
        )
        self._process.start()

    @property
    def is_running(self):
        return self._process.is_alive()

    @property
    def output(self):
        return self._output.read_text(errors="replace")

    def kill(self):
        """Kills at once; does nothing where the process has ended."""
        self._process.kill()
        self._process.join()

    def wait(self):
        """The exit status; a signal's is negative."""
        self._process.join(TIMEOUT)
        return self._process.exitcode

    def wait_until(self, condition):
        """Waits for what the process shall bring about.

        Raises:
            AssertionError: If the process ends before.
            TimeoutError: If it takes too long.
        """
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            assert self.is_running, self.output
            if time.monotonic() > deadline:
                raise TimeoutError(self.output)
            time.sleep(0.005)


def _run(arguments, environment, output, prepare):
    """Runs a module as `python -m` does, in a forked process."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    with output.open("wb") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    sys.stdout.reconfigure(line_buffering=True)
    os.chdir(ROOT)
    os.environ.update(environment)
    sys.argv = arguments
    if prepare:
        prepare()
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


@contextlib.contextmanager
def killed_at_the_end(processes):
    """Whatever happens, the processes do not outlive this."""
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()


def cluster(ports):
    """The environment of every worker of a cluster on this machine."""
    workers = [f"localhost:{port}" for port in ports]
    return [
        {
            "TF_CONFIG": json.dumps(
                {
                    "cluster": {"worker": workers},
                    "task": {"type": "worker", "index": index},
                }
            )
        }
        for index in range(len(workers))
    ]
