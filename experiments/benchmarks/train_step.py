"""Times a training step beside keras-hub's.

    pip install tpt_keras[benchmarks]
    python -m experiments.benchmarks.train_step

For float32 and mixed_bfloat16, with and without XLA: one optimizer step on one
batch of real problems, of the `transformer` and `tp_transformer` presets, and
of a model of the same size made of keras-hub's TransformerEncoder and
TransformerDecoder with Keras's own step. Steps are timed in turn.

On JAX everything is compiled with XLA:

    KERAS_BACKEND=jax python -m experiments.benchmarks.train_step --xla=true
"""

import gc

from absl import flags

from tpt_keras.errors import require

from .. import _cli
from . import _measure

FLAGS = flags.FLAGS

flags.DEFINE_integer("batch_size", 64, "Problems in the batch.")
flags.DEFINE_integer("repeats", 7, "Timed steps of each model.")
flags.DEFINE_list(
    "precisions", ["float32", "mixed_bfloat16"], "Dtype policies."
)
flags.DEFINE_list("xla", ["false", "true"], "Whether to compile with XLA.")

PRESETS = ("transformer", "tp_transformer")


def main():
    require("keras_hub", "benchmarks")
    batch = _measure.real_batch(FLAGS.batch_size)
    _measure.print_table(
        row
        for precision in FLAGS.precisions
        for xla in FLAGS.xla
        for row in rows(precision, xla == "true", batch)
    )


def rows(precision, xla, batch):
    """Yields a row for each model."""
    inputs, targets = batch
    tokens = (inputs["encoder_token_ids"] != 0).sum() + (targets != 0).sum()
    seconds = time_steps(precision, xla, batch)
    for name, step in seconds.items():
        yield {
            "precision": precision,
            "XLA": xla,
            "model": name,
            "s/step": step,
            "real tokens/s": float(tokens / step),
            "of keras_hub": step / seconds["keras_hub"],
        }


def time_steps(precision, xla, batch):
    """Returns the median seconds of a step of each model."""
    import keras

    keras.config.set_dtype_policy(precision)
    models = {"keras_hub": keras_hub_model(xla)}
    for preset in PRESETS:
        models[preset] = _measure.preset_trainer(preset, xla)
    seconds = _measure.interleaved_medians(
        {
            name: lambda model=model: model.train_on_batch(*batch)
            for name, model in models.items()
        },
        FLAGS.repeats,
    )
    del models
    keras.backend.clear_session()
    gc.collect()
    return seconds


def keras_hub_model(xla):
    """Builds the `transformer` preset from keras-hub's layers."""
    import keras
    import keras_hub

    from tpt_keras.models import PRESETS as CONFIGS

    config = CONFIGS["transformer"]
    inputs = {
        name: keras.Input((None,), dtype="int32", name=name)
        for name in ("encoder_token_ids", "decoder_token_ids")
    }
    embedding = keras_hub.layers.ReversibleEmbedding(
        config.vocabulary_size, config.hidden_dim
    )

    def embed(token_ids):
        x = embedding(token_ids) * config.hidden_dim**0.5
        return x + keras_hub.layers.SinePositionEncoding()(x)

    cell = {
        "intermediate_dim": config.intermediate_dim,
        "num_heads": config.num_heads,
        "normalize_first": True,
    }
    encoder_mask = inputs["encoder_token_ids"] != 0
    decoder_mask = inputs["decoder_token_ids"] != 0
    x = embed(inputs["encoder_token_ids"])
    for _ in range(config.num_layers):
        x = keras_hub.layers.TransformerEncoder(**cell)(
            x, padding_mask=encoder_mask
        )
    y = embed(inputs["decoder_token_ids"])
    for _ in range(config.num_layers):
        y = keras_hub.layers.TransformerDecoder(**cell)(
            y,
            x,
            decoder_padding_mask=decoder_mask,
            encoder_padding_mask=encoder_mask,
        )
    y = keras.layers.LayerNormalization()(y)
    model = keras.Model(inputs, embedding(y, reverse=True))
    model.compile(
        _measure.adam(global_clipnorm=_measure.CLIPNORM),
        keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, ignore_class=0
        ),
        jit_compile=xla,
    )
    return model


if __name__ == "__main__":
    _cli.run(main)
