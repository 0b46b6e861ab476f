"""Measures the memory of multi-linear attention.

    python -m experiments.benchmarks.memory

Its tensor of queries, keys and values, as it is written in the paper, beside
the form in which the layer computes it: causal attention with one head of 64,
forward, each in a process of its own. Peak resident memory, as Linux counts it,
above what the process held before; the map, `length ** 2` rows of 64, is part
of both.
"""

import concurrent.futures
import json
import multiprocessing
import pathlib
import re

from absl import flags

from .. import _cli
from ._compiled import compiled

FLAGS = flags.FLAGS

flags.DEFINE_list("lengths", ["64", "128", "256", "512"], "Positions.")
flags.DEFINE_integer("batch_size", 4, "Rows.")
flags.DEFINE_string("output", None, "JSON file for the results.")

DIM = 64


def main():
    results = []
    print("| length | " + " | ".join(FORMS) + " |")
    print("| --- " * (1 + len(FORMS)) + "|")
    for length in map(int, FLAGS.lengths):
        result = {name: peak(name, length) for name in FORMS}
        results.append({"length": length, **result})
        cells = [f"{size / 2**20:.0f} MiB" for size in result.values()]
        print(f"| {length} | " + " | ".join(cells) + " |", flush=True)
    if FLAGS.output:
        pathlib.Path(FLAGS.output).write_text(json.dumps(results, indent=2))


def peak(name, length):
    """Bytes that it takes at most, in a new process."""
    with concurrent.futures.ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn")
    ) as process:
        return process.submit(_run, name, length, FLAGS.batch_size).result()


def _run(name, length, batch_size):
    _attend(name, 8, batch_size)  # for what a process loads but once
    before = _resident("VmRSS")
    # Linux forgets the peak there was.
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    _attend(name, length, batch_size)
    return _resident("VmHWM") - before


def _resident(name):
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(re.search(rf"{name}:\s*(\d+) kB", status)[1])


def _attend(name, length, batch_size):
    import keras
    from keras import ops

    from tpt_keras.layers import MultiLinearAttention

    shape = (batch_size, length, 1, DIM)
    mechanism = MultiLinearAttention(max_length=length)
    mechanism.build(shape, shape, shape)
    attend = compiled(
        lambda heads: FORMS[name](mechanism, heads),
        [(shape, "float32")],
        mechanism,
    )
    ops.convert_to_numpy(attend(keras.random.normal(shape)))


def _contracted(mechanism, heads):
    return mechanism(heads, heads, heads, use_causal_mask=True)[0]


def _whole(mechanism, heads):
    """Without a causal mask, which would take another tensor of its size."""
    from keras import ops

    x = heads[:, :, 0]
    length = x.shape[1]
    tensor = ops.matmul(
        ops.expand_dims(x * mechanism.cores[0, 0], 2) * ops.expand_dims(x, 1),
        ops.expand_dims(ops.transpose(x, (0, 2, 1)), 1),
    )  # (batch, length, length, length)
    pairs = ops.reshape(tensor, (-1, length, length**2))
    return ops.matmul(pairs, ops.reshape(mechanism.kernel, (length**2, DIM)))


FORMS = {"whole tensor": _whole, "contracted": _contracted}


if __name__ == "__main__":
    _cli.run(main)
