"""How a command ends when it is interrupted."""

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_GRACE_SECONDS = 3


class Interruption:
    """Ends this process with one line on Ctrl-C (SIGINT) or SIGTERM.

    A `KeyboardInterrupt` alone would not do. It is raised when the interpreter
    has its turn next, which can be minutes later, behind a compiled step; it
    is lost in a destructor; it crashes TensorFlow while that is imported; and
    much of what it passes through has its say. So a thread says the line at
    once, after which nothing is printed any more, and ends the process: at
    once, or where `unwinding` cleans up, after that and at most a few seconds.
    What a command leaves is whole whenever it ends.

    Signals that are ignored, or that a command handles itself, remain so.

    Args:
        line: The line.
    """

    def __init__(self, line):
        self._line = line
        self._unwinding = False
        self._interrupted = False
        self._said = threading.Event()
        self._unwound = threading.Event()

    def __enter__(self):
        # TensorFlow is imported with the other descriptor of it closed.
        self._stderr = os.dup(2)
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._thread = threading.Thread(target=self._end, daemon=True)
        self._thread.start()
        self._handlers = {
            number: signal.signal(number, self._interrupt)
            for number in _SIGNALS
            if signal.getsignal(number) != signal.SIG_IGN
        }
        self._wakeup_fd = signal.set_wakeup_fd(
            self._writer, warn_on_full_buffer=False
        )
        return self

    def __exit__(self, *_):
        signal.set_wakeup_fd(self._wakeup_fd)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._writer)
        self._thread.join()
        os.close(self._reader)
        os.close(self._stderr)

    def unwinding(self, function):
        """Calls a function that cleans up behind itself when interrupted."""
        self._unwinding = True
        try:
            function()
        except BaseException:
            if not self._interrupted:
                raise
        finally:
            self._unwinding = False
        # Here, where no traceback holds on to anything.
        if self._interrupted:
            # What a pool leaves behind has a name in the system until it goes.
            gc.collect()
            self._unwound.set()
            self._thread.join()

    def _interrupt(self, number, frame):
        if self._unwinding and not self._interrupted:
            self._interrupted = True
            # What follows may print.
            self._said.wait(_GRACE_SECONDS)
            raise KeyboardInterrupt

    def _end(self):
        # The interpreter writes the signals' numbers as they come.
        for byte in iter(lambda: os.read(self._reader, 1), b""):
            number = byte[0]
            if signal.getsignal(number) == self._interrupt:
                self._say()
                self._said.set()
                if self._unwinding:
                    self._wait()
                os._exit(128 + number)

    def _say(self):
        """Writes the line, and lets nothing else be written."""
        # On a terminal, what is left of a bar of progress goes.
        start = "\n\x1b[J" if os.isatty(self._stderr) else ""
        os.write(self._stderr, f"{start}{self._line}\n".encode())
        null = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(null, stream.fileno())

    def _wait(self):
        """Waits until all is cleaned up, not for what other processes do."""
        deadline = time.monotonic() + _GRACE_SECONDS
        while time.monotonic() < deadline and not self._unwound.wait(0.1):
            for child in multiprocessing.active_children():
                child.kill()
