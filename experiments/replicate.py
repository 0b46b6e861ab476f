r"""Trains the paper's models, scaled down.

    python -m experiments.replicate --flagfile=replicate.cfg \
        --modules=numbers__place_value,numbers__round_number \
        --replication_dir=models/replication

Writes a model's folder for each model and seed. After every seed it writes the
paper's Table 1 of them (replication.md, replication.json), curves.png and the
report of `experiments.report` (report.html). The same command resumes.
"""

import json
import pathlib

from absl import flags

from tpt_keras.errors import check_choice
from tpt_keras.errors import check_choices
from tpt_keras.errors import check_positive_integer
from tpt_keras.errors import require
from tpt_keras.training.config import TrainingConfig

from . import _cli
from . import _flags

FLAGS = flags.FLAGS
# Fields of a training that a replication defines otherwise or does not have.
NOT_FLAGS = (
    "modules",
    "seed",
    "init_from",
    "text_file",
    "segment_length",
)
METRIC = "val_sequence_accuracy"
SPLITS = ("interpolate", "extrapolate")

flags.DEFINE_list(
    "variants", [], "Presets to train. Default: the paper's four."
)
flags.DEFINE_float("scale", 0.25, "Share of the paper's widths.")
flags.DEFINE_integer("num_layers", 2, "Number of layers; the paper's has 6.")
flags.DEFINE_integer("num_heads", 4, "Number of heads; the paper's has 8.")
flags.DEFINE_integer("seeds", 3, "Trainings of each: seeds 0, 1, ...")
flags.DEFINE_list(
    "modules", [], "Names of modules, patterns (numbers__*), or all."
)
flags.DEFINE_integer(
    "examples", 200, "Problems of each module and split for the table, at most."
)
flags.DEFINE_string("replication_dir", None, "Folder for all results.")
_flags.define(TrainingConfig, leave_out=NOT_FLAGS)
_flags.define_devices(
    "none or mirrored, for each training. Default: mirrored with several GPUs."
)


def main():
    strategy = _flags.strategy()
    from tpt_keras.data_generators import select_groups

    configs = scaled_configs()
    training = TrainingConfig.from_flat(
        modules=select_groups(FLAGS.dataset, FLAGS.data_dir, FLAGS.modules),
        **_flags.values(TrainingConfig, NOT_FLAGS),
    )
    folder = pathlib.Path(FLAGS.replication_dir)
    for seed in range(FLAGS.seeds):
        for number, (name, config) in enumerate(configs.items(), 1):
            place = seed * len(configs) + number
            total = FLAGS.seeds * len(configs)
            print(f"{name}, seed {seed} ({place} of {total})", flush=True)
            train_one(
                name,
                config,
                training.replace(seed=seed),
                model_dir(folder, name, seed),
                strategy,
            )
        write_tables(folder, list(configs), seed + 1, training)
    print(folder / "replication.md")


def check():
    """Refuses invalid flags before anything is loaded."""
    require("matplotlib", "analysis")
    _cli.needed("replication_dir")
    if FLAGS.distribution:
        check_choice("distribution", FLAGS.distribution, ("none", "mirrored"))
    for name in ("seeds", "examples", "num_layers", "num_heads"):
        check_positive_integer(name, FLAGS[name].value)


def scaled_configs():
    """Returns the scaled configurations by the presets' names."""
    from tpt_keras.analysis.replication import ROWS
    from tpt_keras.analysis.replication import scaled_config

    names = FLAGS.variants or ROWS
    check_choices("variant", names, ROWS)
    return {
        name: scaled_config(
            name, FLAGS.scale, FLAGS.num_layers, FLAGS.num_heads
        )
        for name in names
    }


def train_one(name, config, training, path, strategy):
    """Trains, resumes, or does nothing if the training is finished."""
    import keras

    from tpt_keras.training.train import train

    train(config, training, path, preset=name, strategy=strategy)
    # Keeps one training in memory.
    keras.utils.clear_session(free_memory=True)


def model_dir(folder, name, seed):
    return folder / f"{name}-{seed}"


def write_tables(folder, names, seeds, training):
    """Writes the results of the seeds so far."""
    from tpt_keras.analysis.replication import mean_rows
    from tpt_keras.analysis.replication import replication_rows
    from tpt_keras.analysis.report import write_report
    from tpt_keras.files import whole_file
    from tpt_keras.training.state.logs import read_metrics
    from tpt_keras.visualization.curves import draw_comparison
    from tpt_keras.visualization.tables import replication_table

    folders = {
        name: [model_dir(folder, name, seed) for seed in range(seeds)]
        for name in names
    }
    problems = {
        "dataset": training.data.dataset,
        "data_dir": training.data.data_dir,
        "modules": list(training.data.modules),
        "splits": list(SPLITS),
        "examples": FLAGS.examples,
    }
    report = write_report(
        folder / "report.html",
        [str(path) for paths in folders.values() for path in paths],
        problems,
    )
    models = {model["model_dir"]: model for model in report["models"]}
    rows = replication_rows(
        {
            name: [models[str(path)] for path in paths]
            for name, paths in folders.items()
        }
    )
    with whole_file(folder / "replication.json") as partial:
        partial.write_text(json.dumps(rows, indent=2))
    with whole_file(folder / "replication.md") as partial:
        partial.write_text(replication_table(rows, SPLITS), encoding="utf-8")
    curves = {
        name: mean_rows([read_metrics(path) for path in paths], METRIC)
        for name, paths in folders.items()
    }
    with whole_file(folder / "curves.png") as partial:
        draw_comparison({f"mean of {seeds} seeds": curves}, partial, METRIC)


if __name__ == "__main__":
    _cli.run(main, check, resumes=True)
