"""Times a training step beside PyTorch's.

    pip install tpt_keras[torch]
    tpt_keras benchmarks.train_step

Passes over the same real batches of all modules, in float32 and
mixed_bfloat16, of

- `pytorch`: a twin of `tp_transformer` in plain PyTorch, with autocast to
  bfloat16 and a fused Adam,
- `tp_transformer`, ours, also in micro-batches.

Each has a process of its own, and they are timed in turn. KERAS_BACKEND=jax
times ours on JAX.
"""

import itertools

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
    args = precision, config, batches
    makers = {
        "pytorch": (pytorch, *args),
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
    # On JAX, padded to few shapes.
    with trainer.feed(batches) as feed:
        epoch = list(itertools.islice(feed, batches.steps_per_epoch))

    def train():
        trainer.reset_metrics()
        losses = [
            trainer.train_on_batch(*batch, return_dict=True)["loss"]
            for batch in epoch
        ]
        return float(losses[0])

    return train


def new_model(config):
    """Builds the model; its weights are the same in every process."""
    import keras

    from tpt_keras.models import Transformer

    keras.utils.set_random_seed(0)
    return Transformer(config)
