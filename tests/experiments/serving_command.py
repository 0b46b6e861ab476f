"""The command `serve` in a process of its own, as a user starts it."""

import contextlib
import signal
import subprocess
import sys

from tests.experiments.command import ROOT


@contextlib.contextmanager
def serve(*arguments, stop=signal.SIGTERM):
    """Serves on ports that are free, and sees that it stops as it should.

    Args:
        *arguments: Its command line, without the ports.
        stop: The signal to stop it with.

    Yields:
        Dict of the protocols to their addresses.
    """
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "experiments.serve",
            "--port=0",
            "--rest_port=0",
            *map(str, arguments),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            # They are printed when it is ready.
            addresses = dict(
                process.stdout.readline().split() for _ in range(2)
            )
            yield {
                "grpc": addresses["gRPC:"],
                "rest": addresses["REST:"],
            }
            process.send_signal(stop)
            stdout, stderr = process.communicate(timeout=120)
            assert (process.returncode, stdout) == (0, ""), stderr
            assert "Traceback" not in stderr, stderr
        finally:
            process.kill()
