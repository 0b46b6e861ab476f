"""Times every variant beside tp_transformer.

    python -m experiments.benchmarks.variants --precision=mixed_bfloat16

One optimizer step on one batch of real problems, and the cached decoding of
one batch of questions with random weights, up to the longest answer. Every
preset is timed in turn with `tp_transformer` in the same process. The table is
Markdown.
"""

import gc
import json
import pathlib

from absl import flags

from .. import _cli
from ._compiled import compiled
from ._steps import preset_trainer
from ._steps import real_batch
from ._timing import interleaved_medians

FLAGS = flags.FLAGS

flags.DEFINE_list(
    "presets",
    [
        "transformer",
        "tp_transformer_discrete",
        "tp_transformer_tensor",
        "tp_transformer_relative",
        "tp_transformer_xl",
        "tp_transformer_multi_linear",
    ],
    "Names of presets.",
)
flags.DEFINE_integer("batch_size", 32, "Problems in the batch.")
flags.DEFINE_integer("repeats", 7, "Timed steps and calls of each model.")
flags.DEFINE_string("output", None, "JSON file for the results.")
flags.DEFINE_string("precision", "mixed_bfloat16", "Dtype policy.")

BASE = "tp_transformer"


def main():
    import keras

    keras.config.set_dtype_policy(FLAGS.precision)
    batch = real_batch(FLAGS.batch_size)
    source, target = (ids.shape[1] for ids in batch[0].values())
    print(
        f"{FLAGS.precision}, batch {FLAGS.batch_size}, source {source}, "
        f"target {target}\n\n"
        f"| preset | weights | step / {BASE}'s | decoding / {BASE}'s |\n"
        "| --- | --- | --- | --- |"
    )
    results = []
    for preset in FLAGS.presets:
        result = compare(preset, batch)
        results.append(result)
        print(
            f"| `{preset}` | {result['weights']:,} | {result['step']:.2f} | "
            f"{result['decoding']:.2f} |",
            flush=True,
        )
        gc.collect()
    if FLAGS.output:
        pathlib.Path(FLAGS.output).write_text(json.dumps(results, indent=2))


def compare(preset, batch):
    """What a step and decoding of a preset take, in those of the base."""
    trainers = {name: preset_trainer(name, False) for name in (BASE, preset)}
    steps = interleaved_medians(
        {
            name: lambda trainer=trainer: trainer.train_on_batch(*batch)
            for name, trainer in trainers.items()
        },
        FLAGS.repeats,
    )
    token_ids = batch[0]["encoder_token_ids"]
    decoding = interleaved_medians(
        {
            name: answers_of(trainer.transformer, token_ids)
            for name, trainer in trainers.items()
        },
        FLAGS.repeats,
        untimed=1,
    )
    return {
        "preset": preset,
        "weights": trainers[preset].transformer.count_params(),
        "step": steps[preset] / steps[BASE],
        "step_seconds": steps[preset],
        "decoding": decoding[preset] / decoding[BASE],
        "decoding_seconds": decoding[preset],
    }


def answers_of(model, token_ids):
    """Function that returns when the questions are answered."""
    from keras import ops

    from tpt_keras.decoding import GreedySampler

    max_length = model.config.max_answer_length

    def step(token_ids, cache, index):
        logits, cache = model.decode_step(token_ids, cache, index)
        return logits, {name: cache[name] for name in model.changing_caches}

    def generate(token_ids):
        tokenizer = model.tokenizer
        found = GreedySampler().decode(
            step,
            model.init_cache(token_ids, max_length),
            ops.shape(token_ids)[0],
            max_length,
            tokenizer.start_id,
            tokenizer.end_id,
            tokenizer.pad_id,
            while_loop=to_the_limit,
        )
        return found["token_ids"]

    generate = compiled(generate, [((None, None), "int32")], model)
    return lambda: ops.convert_to_numpy(generate(token_ids))


def to_the_limit(is_going_on, advance, loop_vars, maximum_iterations):
    """Runs all steps of a search, whether its rows have ended or not."""
    from keras import ops

    return ops.while_loop(
        lambda state: state["index"] < maximum_iterations, advance, loop_vars
    )


if __name__ == "__main__":
    _cli.run(main)
