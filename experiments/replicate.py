r"""Trains the paper's models or others, scaled down.

    tpt_keras replicate --flagfile=replicate.cfg \
        --modules=numbers__place_value,numbers__round_number \
        --replication_dir=models/replication

Writes a model's folder for each model and seed. After every new seed it writes
the report of `tpt_keras report` (report.md), with the mean of each model's
seeds. The same command resumes. Several processes may share the folder, each
with its own --variants; the command with all of them then writes the report of
all. With --init_from, models continue from those of another replication, such
as one of easier problems.
"""

import itertools
import pathlib

from absl import flags

from tpt_keras.errors import UsageError
from tpt_keras.errors import require
from tpt_keras.training.config import TrainingConfig
from tpt_keras.tuning.search_space import largest_filter
from tpt_keras.tuning.search_space import transformer_preset

from . import _flags

FLAGS = flags.FLAGS
RESUMES = True
# Fields of a training that a replication defines otherwise or does not have.
NOT_FLAGS = ("seed", "init_from", "text_file", "segment_length")

flags.DEFINE_list(
    "variants",
    "transformer,tp_transformer,tp_transformer_b,tp_transformer_c",
    "Presets to train.",
)
flags.DEFINE_float("scale", 0.25, "Share of the paper's widths.")
flags.register_validator(
    "scale", lambda scale: 0 < scale <= 1, "0 < scale <= 1"
)
flags.DEFINE_integer("num_layers", 2, "Number of layers; the paper's has 6.")
flags.DEFINE_integer("num_heads", 4, "Number of heads; the paper's has 8.")
flags.DEFINE_string(
    "hparams", "", "Changes to every preset: hidden_dim=128,dropout=0."
)
flags.DEFINE_integer(
    "max_weights",
    None,
    "Weights of every model, at most: its filter takes all that are left. "
    "Default: filters of the scale.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "seeds", 3, "Trainings of each: seeds 0, 1, ...", lower_bound=1
)
flags.DEFINE_integer(
    "examples",
    200,
    "Problems of each module and split for the report, at most.",
    lower_bound=1,
)
flags.DEFINE_string(
    "init_from",
    "",
    "Folder of another replication: each model starts with the weights of "
    "its variant and seed there.",
)
flags.DEFINE_string(
    "replication_dir", None, "Folder for all results.", required=True
)
_flags.define_training(leave_out=NOT_FLAGS)


def check():
    require("matplotlib", "analysis")


def main():
    strategy = _flags.strategy()
    import keras

    from tpt_keras.analysis.report import write_report
    from tpt_keras.data_generators import training_task
    from tpt_keras.models.stored import MODEL_FILE
    from tpt_keras.models.stored import model_file
    from tpt_keras.training.train import train

    configs = {name: scaled_config(name) for name in FLAGS.variants}
    training = TrainingConfig.from_flat(**_flags.training_fields(NOT_FLAGS))
    if FLAGS.max_weights:
        task = training_task(training)
        configs = {
            name: with_weights(name, task.adapted(config))
            for name, config in configs.items()
        }
    first = pathlib.Path(FLAGS.init_from)
    folder = pathlib.Path(FLAGS.replication_dir)
    report, model_dirs = folder / "report.md", []
    for seed, name in itertools.product(range(FLAGS.seeds), configs):
        model = f"{name}-{seed}"
        if FLAGS.init_from and not (folder / model).exists():
            # Refuses now what is missing or unfinished for the last.
            model_file(first / model)
    for seed in range(FLAGS.seeds):
        is_new = seed == FLAGS.seeds - 1
        for name, config in configs.items():
            model = f"{name}-{seed}"
            model_dirs.append(folder / model)
            number = f"{len(model_dirs)} of {FLAGS.seeds * len(configs)}"
            print(f"{model_dirs[-1]} ({number})", flush=True)
            is_new |= not (model_dirs[-1] / MODEL_FILE).exists()
            initial = FLAGS.init_from and str(first / model)
            recipe = training.replace(seed=seed, init_from=initial)
            train(config, recipe, model_dirs[-1], name, strategy=strategy)
            # Keeps one training in memory.
            keras.utils.clear_session(free_memory=True)
        if is_new:
            write_report(report, model_dirs, examples=FLAGS.examples)
    print(report)


def scaled_config(name):
    preset = transformer_preset(name)
    sizes = {
        "hidden_dim": round(FLAGS.scale * preset.hidden_dim),
        "intermediate_dim": round(FLAGS.scale * preset.intermediate_dim),
        "num_layers": FLAGS.num_layers,
        "num_heads": FLAGS.num_heads,
    }
    try:
        return preset.replace(**sizes | preset.parse_overrides(FLAGS.hparams))
    except UsageError as error:
        raise UsageError(
            f"The variant {name}: {error}", field=error.field
        ) from error


def with_weights(name, config):
    """Returns a configuration with the largest filter in --max_weights."""
    config, num_weights = largest_filter(config, FLAGS.max_weights)
    if num_weights > FLAGS.max_weights:
        raise UsageError(
            f"Even with a filter of 1, {name} has more than "
            f"{FLAGS.max_weights} `max_weights`. Increase it.",
            field="max_weights",
        )
    return config
