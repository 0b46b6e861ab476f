r"""Times every variant beside tp_transformer.

    tpt_keras benchmarks.variants --presets=transformer_gated
    tpt_keras benchmarks.variants --presets=tp_transformer \
        --hparams=positions=rotary

One optimizer step on one batch of real problems, and cached decoding of one
batch of questions. The weights are random, so that answers reach the length
limit. Every preset is timed in turn with `tp_transformer` in the same process.
"""

import functools
import gc

from absl import flags

from tpt_keras.errors import check_choice

from . import _measure

FLAGS = flags.FLAGS

flags.DEFINE_list(
    "presets",
    "transformer,tp_transformer_discrete,tp_transformer_tensor,"
    "transformer_gated,tp_transformer_circular_convolution,"
    "tp_transformer_relative,tp_transformer_xl,tp_transformer_multi_linear",
    "Names of presets.",
)
flags.DEFINE_string(
    "hparams", "", "Changes to these presets: positions=rotary."
)
flags.DEFINE_integer("batch_size", 32, "Problems in the batch.")
flags.DEFINE_integer("repeats", 7, "Timed steps and calls of each model.")
flags.DEFINE_string("precision", "mixed_bfloat16", "Dtype policy.")

BASE = "tp_transformer"


def main():
    import keras

    keras.config.set_dtype_policy(FLAGS.precision)
    # One of several, because its problems are of similar lengths.
    batch = next(_measure.mixed_batches(5, FLAGS.batch_size).iterate())
    _measure.print_table(compare(preset, batch) for preset in FLAGS.presets)


def compare(preset, batch):
    """Times a step and decoding of a preset and of the base in turn."""
    from tpt_keras.decoding import Generator
    from tpt_keras.models import PRESETS
    from tpt_keras.models import build_model

    check_choice("presets", preset, PRESETS)
    config = PRESETS[preset]
    config = config.replace(**config.parse_overrides(FLAGS.hparams))
    trainers = {
        name: _measure.trainer_of(build_model(each))
        for name, each in (("base", PRESETS[BASE]), ("variant", config))
    }
    steps = _measure.interleaved_medians(
        {
            name: functools.partial(trainer.train_on_batch, *batch)
            for name, trainer in trainers.items()
        },
        FLAGS.repeats,
    )
    decoding = _measure.interleaved_medians(
        {
            name: functools.partial(
                Generator(trainer.model).generate_on_batch,
                batch[0]["encoder_token_ids"],
            )
            for name, trainer in trainers.items()
        },
        FLAGS.repeats,
        untimed=1,
    )
    gc.collect()
    return {
        "preset": preset,
        "weights": trainers["variant"].model.count_params(),
        f"step / {BASE}'s": steps["variant"] / steps["base"],
        f"decoding / {BASE}'s": decoding["variant"] / decoding["base"],
    }
