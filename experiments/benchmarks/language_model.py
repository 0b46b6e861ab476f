"""Times reading with a memory and without.

    python -m experiments.benchmarks.language_model

A language model that sees a context of some length at every token: with a
memory, segment after segment (the same length for all positions), or computing
the whole context again for every token, as a model without a memory has to
(Dai et al., 2019, section 4.6). Seconds for a token, weights random.
"""

import json
import pathlib

import numpy as np
from absl import flags

from .. import _cli
from ._compiled import compiled
from ._timing import interleaved_medians

FLAGS = flags.FLAGS

flags.DEFINE_string("preset", "transformer_xl_base", "Name of a preset.")
flags.DEFINE_list("context_lengths", ["128", "256", "512"], "Tokens seen.")
flags.DEFINE_integer("segment_length", 64, "Tokens read at once.")
flags.DEFINE_integer("repeats", 5, "Timed calls of each way.")
flags.DEFINE_string("output", None, "JSON file for the results.")


def main():
    results = []
    print("| context | again for every token | with a memory | times |")
    print("| --- | --- | --- | --- |")
    for context_length in map(int, FLAGS.context_lengths):
        result = {"context_length": context_length}
        result |= seconds_for_a_token(context_length)
        result["times"] = result["again"] / result["memory"]
        results.append(result)
        print(
            f"| {context_length} | {result['again'] * 1e3:.1f} ms | "
            f"{result['memory'] * 1e3:.2f} ms | {result['times']:.0f} |",
            flush=True,
        )
    if FLAGS.output:
        pathlib.Path(FLAGS.output).write_text(json.dumps(results, indent=2))


def seconds_for_a_token(context_length):
    """Of both ways. With a memory, layer upon layer sees farther still."""
    from keras import ops

    from tpt_keras.language_model import TransformerXL

    model = TransformerXL.from_preset(
        FLAGS.preset, memory_length=context_length, same_length=True
    )
    size = FLAGS.segment_length
    token_ids = np.random.default_rng(0).integers(
        0, model.config.vocabulary_size, (1, context_length + size)
    )
    # The memory after all but the last segment, which is then timed.
    _, memory = model(token_ids[:, :-size], model.init_memory(1))

    def read(segment, length, *states):
        return model(segment, {"states": states, "length": length})[0]

    read = compiled(
        read,
        [
            ((1, size), "int32"),
            ((1,), "int32"),
            *[(state.shape, state.dtype) for state in memory["states"]],
        ],
        model,
    )
    again = compiled(
        lambda context: model(context)[:, -1:],
        [((1, context_length), "int32")],
        model,
    )
    segment = ops.convert_to_tensor(token_ids[:, -size:], "int32")
    context = ops.convert_to_tensor(token_ids[:, -context_length:], "int32")
    medians = interleaved_medians(
        {
            "memory": lambda: ops.convert_to_numpy(
                read(segment, memory["length"], *memory["states"])
            ),
            "again": lambda: ops.convert_to_numpy(again(context)),
        },
        FLAGS.repeats,
    )
    return {"again": medians["again"], "memory": medians["memory"] / size}


if __name__ == "__main__":
    _cli.run(main)
