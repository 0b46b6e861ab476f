"""Times a training step beside PyTorch's.

    pip install tpt_keras[benchmarks,torch]
    tpt_keras benchmarks.train_step

Passes over the same real batches of all modules, in float32 and
mixed_bfloat16, of

- `pytorch`: a twin of `tp_transformer` in plain PyTorch, with autocast to
  bfloat16 and a fused Adam,
- `keras_hub`: a model of the same size without roles, made of keras-hub's
  TransformerEncoder and TransformerDecoder, with Keras's own step,
- `tp_transformer`, ours, also in micro-batches.

Each has a process of its own, and they are timed in turn. KERAS_BACKEND=jax
times all but the twin on JAX.
"""

from absl import flags

from tpt_keras.errors import require

from . import _measure

FLAGS = flags.FLAGS
# The paper's optimizer.
ADAM = {"learning_rate": 1e-4, "beta_2": 0.995, "epsilon": 1e-8}
CLIPNORM = 0.1

flags.DEFINE_integer("batch_size", 64, "Problems in a batch.")
flags.DEFINE_integer("batches", 10, "Batches of a pass.")
flags.DEFINE_integer("repeats", 5, "Timed passes of each model.")
flags.DEFINE_list(
    "precisions", ["float32", "mixed_bfloat16"], "Dtype policies."
)
flags.DEFINE_integer(
    "micro_batches",
    2,
    "Parts of a batch that ours is timed with, too; 1 leaves this out.",
    lower_bound=1,
)


def check():
    require("keras_hub", "benchmarks")
    require("torch", "torch")


def main():
    from tpt_keras.models import PRESETS

    print(f"{_measure.processor()}\n")
    config = PRESETS["tp_transformer"]
    batches = _measure.mixed_batches(FLAGS.batches, FLAGS.batch_size)
    _measure.print_table(
        row
        for precision in FLAGS.precisions
        for row in time_models(precision, config, batches)
    )


def time_models(precision, config, batches):
    """Yields a row for each model."""
    args = precision, config, batches
    makers = {
        "pytorch": (pytorch, *args),
        "keras_hub": (keras_hub, *args),
        "tp_transformer": (ours, *args),
    }
    if FLAGS.micro_batches > 1:
        name = f"tp_transformer, {FLAGS.micro_batches} micro-batches"
        makers[name] = (ours, *args, FLAGS.micro_batches)
    with _measure.in_processes(makers) as passes:
        # Also the warm-up: every shape is new once.
        losses = {name: train() for name, train in passes.items()}
        seconds = _measure.interleaved_medians(passes, FLAGS.repeats)
    tokens = sum(
        (inputs["encoder_token_ids"] != 0).sum() + (targets != 0).sum()
        for inputs, targets in batches.iterate(num_epochs=1)
    )
    for name, median in seconds.items():
        yield {
            "precision": precision,
            "model": name,
            "first loss": losses[name],
            "examples/s": len(batches) / median,
            "real tokens/s": float(tokens / median),
            "times pytorch": seconds["pytorch"] / median,
        }


def pytorch(precision, config, batches):
    """Returns a function that trains the twin and gives its first loss."""
    import torch

    from . import _pytorch_twin

    twin = _pytorch_twin.Twin(new_model(config))
    step = _pytorch_twin.training_step(twin, precision)
    epoch = [
        [torch.as_tensor(ids) for ids in (*inputs.values(), targets)]
        for inputs, targets in batches.iterate(num_epochs=1)
    ]

    def train():
        losses = [step(*batch)[0] for batch in epoch]
        return losses[0]

    return train


def ours(precision, config, batches, micro_batches=1):
    """The same for the Keras model."""
    import keras

    from tpt_keras.training.optimizers import PyTorchAdam
    from tpt_keras.training.trainer import Trainer

    keras.config.set_dtype_policy(precision)
    trainer = Trainer(
        new_model(config),
        global_clipnorm=CLIPNORM,
        gradient_accumulation_steps=micro_batches,
    )
    trainer.compile(PyTorchAdam(**ADAM), jit_compile=False)
    return keras_pass(trainer, batches)


def new_model(config):
    """Builds the model; its weights are the same in every process."""
    import keras

    from tpt_keras.models import Transformer

    keras.utils.set_random_seed(0)
    return Transformer(config)


def keras_pass(model, batches):
    epoch = _measure.fed(batches)

    def train():
        model.reset_metrics()
        losses = [
            model.train_on_batch(*batch, return_dict=True)["loss"]
            for batch in epoch
        ]
        return float(losses[0])

    return train


def keras_hub(precision, config, batches):
    """The same for a model made of keras-hub's layers."""
    import keras
    import keras_hub

    keras.config.set_dtype_policy(precision)
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
        keras.optimizers.Adam(**ADAM, global_clipnorm=CLIPNORM),
        keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, ignore_class=0
        ),
        jit_compile=keras.backend.backend() == "jax",
    )
    return keras_pass(model, batches)
