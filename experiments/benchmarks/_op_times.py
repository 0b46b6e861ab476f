"""Times of each kind of op, on one thread, by the frameworks' own profilers."""

import collections
import functools
import glob
import os
import tempfile

from tpt_keras.errors import UsageError

from . import _measure

# Ops of less than this share of the time are not listed.
SMALLEST_SHARE = 0.005


def check():
    """Refuses JAX, before anything is made."""
    if os.environ["KERAS_BACKEND"] == "jax":
        raise UsageError(
            "XLA fuses ops, so that there are no times of single ones. Set "
            "KERAS_BACKEND to tensorflow or torch, or leave `op_times` out.",
            field="op_times",
        )


def print_op_times(makers, *args):
    """Prints the ops of functions that are made in processes of their own.

    Args:
        makers: As `_measure.in_processes` takes them. A name that starts with
            "pytorch" is PyTorch's.
        *args: The functions' arguments.
    """
    makers = {name: (profiled, name, *maker) for name, maker in makers.items()}
    with _measure.in_processes(makers) as functions:
        _measure.print_table(
            row
            for name, function in functions.items()
            for row in rows(name, function(*args))
        )


def rows(name, times):
    """Yields the table's rows of one model, largest first."""
    total = sum(ms for _, ms in times.values())
    yield {"model": name, "op": "all", "calls": "", "ms": total, "share": 1.0}
    for op, (calls, ms) in sorted(times.items(), key=lambda t: -t[1][1]):
        if ms > SMALLEST_SHARE * total:
            yield {
                "model": name,
                "op": op,
                "calls": calls,
                "ms": ms,
                "share": ms / total,
            }


def profiled(name, maker, *maker_args):
    """Returns a function to a dict of op to calls and milliseconds."""
    profile = _pytorch
    if os.environ["KERAS_BACKEND"] == "tensorflow" and not name.startswith(
        "pytorch"
    ):
        profile = _tensorflow
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    function = maker(*maker_args)

    def call(*args):
        for _ in range(2):  # TensorFlow traces twice
            function(*args)
        return profile(functools.partial(function, *args))

    return call


def _pytorch(function):
    import torch

    torch.set_num_threads(1)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profiler:
        function()
    return {
        event.key: (event.count, event.self_cpu_time_total / 1e3)
        for event in profiler.key_averages()
    }


def _tensorflow(function):
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder):
            function()
        (path,) = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
        with open(path, "rb") as file:
            space = xplane_pb2.XSpace.FromString(file.read())
    (plane,) = (p for p in space.planes if p.name == "/host:CPU")
    calls, picoseconds = collections.Counter(), collections.Counter()
    for line in plane.lines:
        if not line.name.startswith("tf_"):
            continue  # a thread that waits for the ops
        # Events are nested: an event's own time is without its children's.
        open_events = []
        for event in sorted(
            line.events, key=lambda e: (e.offset_ps, -e.duration_ps)
        ):
            op = plane.event_metadata[event.metadata_id].name.split(":")[-1]
            while open_events and open_events[-1][1] <= event.offset_ps:
                open_events.pop()
            if open_events:
                picoseconds[open_events[-1][0]] -= event.duration_ps
            open_events.append((op, event.offset_ps + event.duration_ps))
            calls[op] += 1
            picoseconds[op] += event.duration_ps
    return {op: (calls[op], picoseconds[op] / 1e9) for op in calls}
