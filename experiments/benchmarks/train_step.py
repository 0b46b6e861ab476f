"""Times a training step of ours and of keras-hub.

    pip install tpt_keras[benchmarks]
    python -m experiments.benchmarks.train_step

For float32 and mixed_bfloat16, with and without XLA, one optimizer step on one
batch of real problems of all modules: of the `transformer` and
`tp_transformer` presets with our `TransformerTrainer`, and of a model of the
same size made of keras-hub's TransformerEncoder and TransformerDecoder with
Keras's own step. Steps are timed in turn.

On the JAX backend too, where all is compiled with XLA:

    KERAS_BACKEND=jax python -m experiments.benchmarks.train_step --xla=true
"""

import gc
import json

import numpy as np
from absl import flags

from .. import _cli
from ._compiled import matrix_product
from ._steps import CLIPNORM
from ._steps import adam
from ._steps import preset_trainer
from ._steps import real_batch
from ._timing import interleaved_medians

FLAGS = flags.FLAGS

flags.DEFINE_integer("batch_size", 64, "Problems in the batch.")
flags.DEFINE_integer("repeats", 7, "Timed steps of each model.")
flags.DEFINE_list(
    "precisions", ["float32", "mixed_bfloat16"], "Dtype policies."
)
flags.DEFINE_list("xla", ["false", "true"], "Whether to compile with XLA.")
flags.DEFINE_integer(
    "matrix_size", 4096, "Rows of the matrices whose product is timed."
)
flags.DEFINE_string("output", None, "JSON file for the results.")

PRESETS = ("transformer", "tp_transformer")


def main():
    batch = real_batch(FLAGS.batch_size)
    inputs, targets = batch
    tokens = int(
        (inputs["encoder_token_ids"] != 0).sum() + (targets != 0).sum()
    )
    print(
        f"batch {FLAGS.batch_size}, source "
        f"{inputs['encoder_token_ids'].shape[1]}, target {targets.shape[1]}, "
        f"{tokens} real tokens"
    )
    results = []
    for precision in FLAGS.precisions:
        for xla in (text == "true" for text in FLAGS.xla):
            seconds = time_steps(precision, xla, batch)
            peak = (
                2
                * FLAGS.matrix_size**3
                / min(
                    seconds.pop("matrix_product"),
                    seconds.pop("matrix_product_xla"),
                )
            )
            print(
                f"\n{precision}, xla={xla}: a large matrix product makes "
                f"{peak / 1e9:.0f} GFLOP/s"
            )
            for name, step in seconds.items():
                result = {
                    "precision": precision,
                    "xla": xla,
                    "model": name,
                    "step_seconds": step,
                    "examples_per_second": FLAGS.batch_size / step,
                    "real_tokens_per_second": tokens / step,
                    "of_keras_hub": step / seconds["keras_hub"],
                    "share_of_peak": step_flops(name, batch) / step / peak,
                }
                results.append(result)
                print(
                    f"  {name:15} {step:6.3f} s/step "
                    f"{result['examples_per_second']:6.1f} examples/s "
                    f"{result['real_tokens_per_second']:7.0f} tokens/s "
                    f"{result['share_of_peak']:4.0%} of peak "
                    f"{result['of_keras_hub']:5.2f} x keras-hub",
                    flush=True,
                )
    if FLAGS.output:
        with open(FLAGS.output, "w") as file:
            json.dump(results, file, indent=2)


def time_steps(precision, xla, batch):
    """Median seconds of a step of each model, and of a matrix product."""
    import keras

    keras.config.set_dtype_policy(precision)
    models = {"keras_hub": keras_hub_model(xla)}
    for preset in PRESETS:
        models[preset] = preset_trainer(preset, xla)
    inputs, targets = batch
    timed = {
        name: lambda model=model: model.train_on_batch(inputs, targets)
        for name, model in models.items()
    }
    # Timed in turn with the steps, for the machine has slow minutes.
    size, dtype = FLAGS.matrix_size, precision.removeprefix("mixed_")
    timed["matrix_product"] = matrix_product(size, dtype, xla=False)
    timed["matrix_product_xla"] = matrix_product(size, dtype, xla=True)
    seconds = interleaved_medians(timed, FLAGS.repeats)
    del models
    keras.backend.clear_session()
    gc.collect()
    return seconds


def keras_hub_model(xla):
    """The `transformer` preset's size from keras-hub's layers."""
    import keras
    import keras_hub

    from tpt_keras.models import PRESETS as CONFIGS
    from tpt_keras.training.token_cross_entropy import TokenCrossEntropy

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
        adam(global_clipnorm=CLIPNORM),
        TokenCrossEntropy(pad_id=0),
        jit_compile=xla,
    )
    return model


def step_flops(name, batch):
    """Floating-point operations of the matrix products of one step.

    Counted for the padded batch; the backward pass counts twice the forward.
    """
    from tpt_keras.models import PRESETS as CONFIGS

    config = CONFIGS[name if name in CONFIGS else "transformer"]
    batch_size, source = batch[0]["encoder_token_ids"].shape
    target = batch[1].shape[1]
    square = config.hidden_dim**2
    has_role = config.binding != "none"
    feed_forward = 2 * config.hidden_dim * config.intermediate_dim
    at_query = 2 + has_role  # query, output and role maps; key and value are 2
    per_source = config.num_layers * (
        (at_query + 2) * square + feed_forward + 2 * square
    )
    per_target = config.num_layers * (
        (2 * at_query + 2) * square + feed_forward
    )
    embedding = config.bind_embeddings * square * (source + target)
    logits = target * config.vocabulary_size * config.hidden_dim
    attention = (
        2
        * config.num_layers
        * config.hidden_dim
        * (source**2 + target**2 + source * target)
    )
    multiplications = batch_size * (
        per_source * source
        + per_target * target
        + embedding
        + logits
        + attention
    )
    return float(np.float64(multiplications) * 2 * 3)


if __name__ == "__main__":
    _cli.run(main)
