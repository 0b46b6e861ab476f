r"""Times a server under load.

    python -m experiments.benchmarks.serving \
        --saved_model=saved_models/tp_transformer_mathematics

Clients that each ask a question over gRPC, wait for the answer and ask the
next one: answers a second, and how long a client waits. For every combination
of the settings a stand-in for TF Serving, in a process of its own, on the
machine of the clients. Questions are of all modules in random order.
"""

import concurrent.futures
import itertools
import json
import pathlib
import threading
import time

from absl import flags

from tpt_keras.errors import UsageError

from .. import _cli
from ._problems import mixed_problems
from ._served import served

FLAGS = flags.FLAGS

flags.DEFINE_string("saved_model", None, "Folder of a model's versions.")
flags.DEFINE_list("clients", ["1", "8", "32", "128"], "Clients at once.")
flags.DEFINE_list(
    "num_batch_threads", ["1", "2"], "Batches computed at the same time."
)
flags.DEFINE_list("intra_op", ["1", "2"], "Threads of one operation.")
flags.DEFINE_list("inter_op", ["2"], "Operations at the same time.")
flags.DEFINE_list(
    "paddings",
    ["none"],
    "Whether batches are filled up to a power of two: none, powers.",
)
flags.DEFINE_float("seconds", 20.0, "Seconds of each measurement.")
flags.DEFINE_string("output", None, "JSON file for the results.")

PERCENTILES = (50, 95, 99)


def main():
    if not FLAGS.saved_model:
        raise UsageError("--saved_model is needed.")
    if not set(FLAGS.paddings) <= {"none", "powers"}:
        raise UsageError("--paddings takes none and powers.")
    questions, _ = mixed_problems(1000)
    results = []
    for setting in settings():
        print(json.dumps(setting), flush=True)
        with served(FLAGS.saved_model, setting) as address:
            for clients in map(int, FLAGS.clients):
                load = measure(address, questions, clients)
                results.append({**setting, "clients": clients, **load})
                waits = ", ".join(f"{load[f'p{p}']:.0f}" for p in PERCENTILES)
                print(
                    f"  {clients} clients: {load['rate']:.1f} answers/s; "
                    f"waits of {waits} ms ({PERCENTILES} percentile)",
                    flush=True,
                )
    if FLAGS.output:
        pathlib.Path(FLAGS.output).write_text(json.dumps(results, indent=2))


def settings():
    """Dicts, of all combinations."""
    names = ("num_batch_threads", "intra_op", "inter_op")
    numbers = [[int(value) for value in FLAGS[name].value] for name in names]
    for *values, padding in itertools.product(*numbers, FLAGS.paddings):
        yield {**dict(zip(names, values)), "padding": padding}


def measure(address, questions, clients):
    """Answers a second and percentiles of milliseconds of so many clients."""
    import numpy as np

    from tpt_keras.serving import GrpcClient

    # Everyone is there, and waits, before anything counts.
    started = time.monotonic() + min(3.0, FLAGS.seconds)
    ended = started + FLAGS.seconds
    numbers = itertools.count()
    lock = threading.Lock()

    def ask(_):
        waits = []
        with GrpcClient(address, timeout=600) as client:
            while (begin := time.monotonic()) < ended:
                with lock:
                    number = next(numbers)
                client.answer([questions[number % len(questions)]])
                end = time.monotonic()
                if started <= end < ended:
                    waits.append(end - begin)
        return waits

    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        waits = [
            wait for part in pool.map(ask, range(clients)) for wait in part
        ]
    if not waits:
        raise UsageError(
            f"No answer came in {FLAGS.seconds:g} seconds; give more --seconds."
        )
    percentiles = np.percentile(np.array(waits) * 1000, PERCENTILES)
    return {
        "rate": len(waits) / FLAGS.seconds,
        **{f"p{p}": float(v) for p, v in zip(PERCENTILES, percentiles)},
    }


if __name__ == "__main__":
    _cli.run(main)
