"""How the chief of a search knows that a worker is lost.

A worker that lives changes a file in the search's folder, which all share,
every few seconds.
"""

import contextlib
import itertools
import pathlib
import threading
import time

FOLDER = "workers"
BEAT_SECONDS = 2.0
# Without a beat for so long, a worker is lost: far more than what may hold up
# a thread or a shared disk.
LOST_SECONDS = 60.0


@contextlib.contextmanager
def repeated(action):
    """Does something every few seconds, in a thread of its own.

    Args:
        action: Function without arguments.
    """
    ended = threading.Event()

    def repeat():
        while not ended.wait(BEAT_SECONDS):
            action()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def pulse(folder, tuner_id):
    """Shows that a worker lives.

    Args:
        folder: The search's folder.
        tuner_id: The worker's name.

    Returns:
        A context manager.
    """
    path = pathlib.Path(folder) / FOLDER / tuner_id
    path.parent.mkdir(exist_ok=True)
    # Not the time of the file: machines' clocks differ.
    beats = itertools.count()
    return repeated(lambda: path.write_text(str(next(beats))))


class Pulses:
    """Which workers are lost, for the chief.

    Args:
        folder: The search's folder.
    """

    def __init__(self, folder):
        self._folder = pathlib.Path(folder) / FOLDER
        self._seen = {}

    def is_lost(self, tuner_id):
        """Whether a worker's file has not changed for too long.

        Args:
            tuner_id: The worker's name.
        """
        try:
            beat = (self._folder / tuner_id).read_text()
        except FileNotFoundError:
            beat = None
        now = time.monotonic()
        last, since = self._seen.get(tuner_id, (None, None))
        if since is None or beat != last:
            self._seen[tuner_id] = (beat, now)
            return False
        return now - since > LOST_SECONDS
