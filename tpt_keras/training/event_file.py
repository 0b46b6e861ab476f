import itertools
import os
import pathlib
import socket
import time

from tpt_keras.files import named_in_errors

_numbers = itertools.count()


class EventFile:
    """Numbers for TensorBoard, written without TensorFlow.

    Args:
        folder: Folder of a run; made where it is not there. Every object makes
            a file of its own there.
    """

    def __init__(self, folder):
        # Here, for training is imported by who never writes any.
        from tensorboard.compat.proto import event_pb2
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event = event_pb2.Event
        self._scalar = scalar_pb
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard goes by the middle, and reads files in their order.
        self._path = folder / (
            f"events.out.tfevents.{int(time.time()):010d}."
            f"{socket.gethostname()}.{os.getpid()}.{next(_numbers)}.v2"
        )
        self._writer = RecordWriter
        self._write([event_pb2.Event(file_version="brain.Event:2")])

    def write(self, step, values):
        """Adds numbers; they are in the file when this returns.

        Args:
            step: Integer.
            values: Dict of tags to numbers.
        """
        self._write(
            [
                self._event(step=step, summary=self._scalar(tag, value))
                for tag, value in values.items()
            ]
        )

    def write_summary(self, summary, step=0):
        """Adds a summary.

        Args:
            summary: A `Summary` of TensorBoard.
            step: Integer.
        """
        self._write([self._event(step=step, summary=summary)])

    def _write(self, events):
        # Opened each time, so that nobody has to close it.
        with named_in_errors(self._path), self._path.open("ab") as file:
            writer = self._writer(file)
            for event in events:
                event.wall_time = time.time()
                writer.write(event.SerializeToString())
