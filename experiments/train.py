"""Trains a model, or goes on with a training.

    python -m experiments.train --flagfile=demo.cfg --model_dir=models/demo

A flag after a flagfile overrides it.
"""

import dataclasses

from absl import flags

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names

from . import _cli

FLAGS = flags.FLAGS

flags.DEFINE_string("preset", "tp_transformer", "Name of the model's preset.")
flags.DEFINE_string(
    "hparams",
    "",
    "Changes to the preset: hidden_dim=256,num_layers=3.",
)
flags.DEFINE_list(
    "modules", [], "Names of modules, patterns (numbers__*), or all."
)
flags.DEFINE_list(
    "module_weights",
    [],
    "Shares of the modules: numbers__gcd=2,numbers__place_value=0.5. One that "
    "is not named has 1.",
)
flags.DEFINE_string(
    "dataset", "mathematics_dataset", "mathematics_dataset or math_dataset."
)
flags.DEFINE_string("data_dir", "data", "Folder that prepare_data filled.")
flags.DEFINE_string("model_dir", None, "Folder for everything that is left.")
flags.DEFINE_integer("train_steps", 1_000_000, "Number of optimizer steps.")
flags.DEFINE_integer("batch_size", 1024, "Problems in a batch.")
flags.DEFINE_string("optimizer", "adam", "adam or lion.")
flags.DEFINE_float("learning_rate", 1e-4, "Peak learning rate.")
flags.DEFINE_string("schedule", "constant", "constant or cosine.")
flags.DEFINE_integer("warmup_steps", 0, "Steps that the rate rises over.")
flags.DEFINE_float("beta_1", 0.9, "Decay of the first moment.")
flags.DEFINE_float("beta_2", 0.995, "Decay of the second moment.")
flags.DEFINE_float("adam_epsilon", 1e-8, "Adam's epsilon.")
flags.DEFINE_float("weight_decay", 0.0, "Decoupled weight decay.")
flags.DEFINE_float("global_clipnorm", 0.1, "Clips the whole gradient's norm.")
flags.DEFINE_integer(
    "validation_examples", 1000, "Training problems set apart for validation."
)
flags.DEFINE_integer("steps_per_checkpoint", 200, "Steps between checkpoints.")
flags.DEFINE_integer(
    "steps_per_evaluation",
    1000,
    "Steps between evaluations, a multiple of steps_per_checkpoint.",
)
flags.DEFINE_string(
    "precision", "float32", "float32, mixed_bfloat16 or mixed_float16."
)
flags.DEFINE_integer("seed", 0, "Seed of weights, order and dropout.")
flags.DEFINE_string(
    "init_from",
    "",
    "Folder of a model to start with the weights of: its best, or its last "
    "where there is no best. Default: new weights.",
)

# From here on: what may change from one run of a training to the next.
flags.DEFINE_string(
    "distribution",
    None,
    "none, mirrored or multi_worker_mirrored (with TF_CONFIG). Default: "
    "mirrored where there is more than one GPU.",
)
flags.DEFINE_integer("num_gpus", None, "GPUs to use. Default: all.")
flags.DEFINE_integer(
    "logical_cpus", None, "Devices to cut the CPU into, to try --distribution."
)
flags.DEFINE_integer(
    "gradient_accumulation_steps",
    1,
    "Parts that a batch is computed in, one after another, to save memory.",
)
flags.DEFINE_integer(
    "steps_per_execution", 1, "Steps made without coming back to Python."
)
flags.DEFINE_bool("jit_compile", False, "Whether to compile with XLA.")
flags.DEFINE_bool(
    "rematerialize",
    False,
    "Whether to compute activations twice, to save memory.",
)
flags.DEFINE_integer("keep_checkpoints", 3, "Number of checkpoints to keep.")
flags.DEFINE_string(
    "on_nan",
    "stop",
    "When the loss is not finite: stop, or rollback to the last checkpoint "
    "and go on with other batches.",
)
flags.DEFINE_integer(
    "max_steps_without_improvement",
    0,
    "Stops when validation has not improved for so long. 0: never.",
)
flags.DEFINE_integer(
    "evaluation_examples",
    200,
    "Problems of every module and split that an evaluation looks at.",
)
flags.DEFINE_list(
    "profile_steps", [], "First and last step to profile: 100,110."
)


def main():
    if not FLAGS.model_dir:
        raise UsageError("--model_dir is missing: where shall the model go?")
    if not FLAGS.modules:
        raise UsageError("--modules is missing: what shall be learned?")
    from tpt_keras.training.distribution import make_strategy

    # Before anything else is asked of TensorFlow: it fixes the devices.
    strategy = make_strategy(
        FLAGS.distribution, FLAGS.num_gpus, FLAGS.logical_cpus
    )
    from tpt_keras.data_generators.mathematics_modules import select_modules
    from tpt_keras.models import PRESETS
    from tpt_keras.training.run_options import RunOptions
    from tpt_keras.training.train import train
    from tpt_keras.training.training_config import TrainingConfig
    from tpt_keras.training.training_config import parse_module_weights

    check_names("preset", [FLAGS.preset], PRESETS)
    preset = PRESETS[FLAGS.preset]
    modules = select_modules(FLAGS.modules)
    train(
        preset.replace(**preset.parse_overrides(FLAGS.hparams)),
        TrainingConfig(
            **_flags_of(TrainingConfig)
            | {
                "modules": modules,
                "module_weights": parse_module_weights(
                    FLAGS.module_weights, modules
                ),
            }
        ),
        FLAGS.model_dir,
        preset=FLAGS.preset,
        options=RunOptions(**_flags_of(RunOptions)),
        strategy=strategy,
    )


def _flags_of(config_class):
    """The values of the flags that a dataclass has as fields."""
    return {
        field.name: FLAGS[field.name].value
        for field in dataclasses.fields(config_class)
    }


if __name__ == "__main__":
    _cli.run(main, goes_on=True)
