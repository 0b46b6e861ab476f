"""Trains a model.

python -m experiments.train --flagfile=experiments/configs/demo.cfg
"""

import dataclasses

from absl import flags

from experiments import _cli
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names

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
    "module_weights", [], "Shares of the modules, sorted by name."
)
flags.DEFINE_string(
    "dataset", "mathematics_dataset", "mathematics_dataset or math_dataset."
)
flags.DEFINE_string("data_dir", "data", "Folder that prepare_data filled.")
flags.DEFINE_string("model_dir", None, "Folder for everything that is left.")
flags.DEFINE_integer("train_steps", 1_000_000, "Number of optimizer steps.")
flags.DEFINE_integer("batch_size", 1024, "Problems in a batch.")
flags.DEFINE_float("learning_rate", 1e-4, "Peak learning rate.")
flags.DEFINE_string("schedule", "constant", "constant or cosine.")
flags.DEFINE_integer("warmup_steps", 0, "Steps that the rate rises over.")
flags.DEFINE_float("beta_1", 0.9, "Adam's decay of the first moment.")
flags.DEFINE_float("beta_2", 0.995, "Adam's decay of the second moment.")
flags.DEFINE_float("adam_epsilon", 1e-8, "Adam's epsilon.")
flags.DEFINE_float("global_clipnorm", 0.1, "Clips the whole gradient's norm.")
flags.DEFINE_integer(
    "validation_examples", 1000, "Training problems set apart for validation."
)
flags.DEFINE_integer(
    "steps_per_evaluation",
    1000,
    "Steps between evaluations, each of which leaves a checkpoint.",
)
flags.DEFINE_integer("seed", 0, "Seed of weights, order and dropout.")
flags.DEFINE_bool("jit_compile", False, "Whether to compile with XLA.")


def main():
    if not FLAGS.model_dir:
        raise UsageError("--model_dir is missing: where shall the model go?")
    if not FLAGS.modules:
        raise UsageError("--modules is missing: what shall be learned?")
    from tpt_keras.data_generators.mathematics_modules import select_modules
    from tpt_keras.models import PRESETS
    from tpt_keras.training.train import train
    from tpt_keras.training.training_config import TrainingConfig

    check_names("preset", [FLAGS.preset], PRESETS)
    preset = PRESETS[FLAGS.preset]
    model_config = preset.replace(**preset.parse_overrides(FLAGS.hparams))
    config = TrainingConfig(
        **{
            field.name: FLAGS[field.name].value
            for field in dataclasses.fields(TrainingConfig)
        }
        | {"modules": select_modules(FLAGS.modules)}
    )
    train(model_config, config, FLAGS.model_dir, preset=FLAGS.preset)


if __name__ == "__main__":
    _cli.run(main)
