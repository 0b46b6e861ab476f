r"""Fills a data folder with problems.

They become datasets of TensorFlow Datasets. Generates the problems:

    python -m experiments.prepare_data --modules=all --data_dir=data

or takes the released archive, downloaded or already there:

    python -m experiments.prepare_data --source=official --data_dir=data \
        --modules=all --archive=mathematics_dataset-v1.0.tar.gz
"""

import json
import logging
import os
import pathlib

from absl import flags

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.errors import check_positive_integer
from tpt_keras.errors import require

from . import _cli

FLAGS = flags.FLAGS

flags.DEFINE_list(
    "modules",
    None,
    "Names of modules, patterns (numbers__*), or all.",
    required=True,
)
flags.DEFINE_string("data_dir", "data", "Folder to fill.")
flags.DEFINE_string("source", "generated", "generated or official.")
flags.DEFINE_string(
    "dataset",
    "mathematics_dataset",
    "mathematics_dataset (five splits), or math_dataset, the stock one.",
)
flags.DEFINE_string(
    "archive", None, "The official archive or its folder, if already there."
)
flags.DEFINE_integer("train_examples", 100_000, "Generated, per module.")
flags.DEFINE_integer(
    "evaluation_examples", 10_000, "Generated, per module and split."
)
flags.DEFINE_integer("seed", 0, "Seed of the generated problems.")
flags.DEFINE_integer("num_workers", os.cpu_count(), "Number of processes.")
flags.DEFINE_string(
    "beam_pipeline_options",
    None,
    "Generates with Apache Beam: its options, separated by commas "
    "(runner=DirectRunner,direct_num_workers=2).",
)

logger = logging.getLogger(__name__)


def check():
    check_choice("source", FLAGS.source, ("generated", "official"))
    for name in ("train_examples", "evaluation_examples", "num_workers"):
        check_positive_integer(name, FLAGS[name].value)
    if FLAGS.beam_pipeline_options is not None:
        require("apache_beam", "beam")


def main():
    _cli.import_tensorflow()
    from tpt_keras.data_generators.mathematics.modules import select_modules
    from tpt_keras.data_generators.mathematics.task import DATASETS

    modules = select_modules(FLAGS.modules)
    check_choice("dataset", FLAGS.dataset, DATASETS)
    beam_options = _beam_options()
    prepare(modules, beam_options)


def prepare(modules, beam_options):
    """Prepares the datasets of the modules that have none."""
    from tpt_keras.data_generators.mathematics.datasets import dataset_builder
    from tpt_keras.data_generators.mathematics.datasets import prepare_dataset

    missing = []
    for module in modules:
        builder = dataset_builder(module, FLAGS.data_dir, FLAGS.dataset)
        if builder.is_prepared():
            check_settings(builder)
            print(f"{module} is there already: {builder.data_path}")
        else:
            missing.append(module)
    if not missing:
        return
    text_dir = make_texts(missing, beam_options)
    for module in missing:
        builder = prepare_dataset(
            module, FLAGS.data_dir, text_dir, FLAGS.dataset, beam_options
        )
        counts = {
            name: split.num_examples
            for name, split in builder.info.splits.items()
        }
        print(f"{builder.data_path}: {json.dumps(counts)}")


def make_texts(modules, beam_options):
    """Makes the modules' text files in the official layout.

    Args:
        modules: Names of training modules.
        beam_options: Apache Beam's pipeline options, or `None`.

    Returns:
        Path of the folder that holds `mathematics_dataset-v1.0`.
    """
    from tpt_keras.data_generators.mathematics import archive
    from tpt_keras.data_generators.mathematics.generator import generate_modules

    if FLAGS.source == "official":
        return archive.fetch_official_text(
            FLAGS.data_dir, modules, FLAGS.archive
        )
    text_dir = pathlib.Path(FLAGS.data_dir) / (
        f"generated-seed{FLAGS.seed}-train{FLAGS.train_examples}"
        f"-evaluation{FLAGS.evaluation_examples}"
    )
    settings = {
        "modules": modules,
        "root": text_dir / archive.FOLDER,
        "train_examples": FLAGS.train_examples,
        "evaluation_examples": FLAGS.evaluation_examples,
        "seed": FLAGS.seed,
    }
    if beam_options is None:
        generate_modules(num_workers=FLAGS.num_workers, **settings)
    else:
        from tpt_keras.data_generators.mathematics import beam

        beam.generate_modules_with_beam(options=beam_options, **settings)
    return text_dir


def check_settings(builder):
    """Refuses a prepared dataset that was made with other settings."""
    from tpt_keras.data_generators.mathematics.generator import split_counts

    path = builder.data_path
    way_out = "remove the folder, or name another `data_dir`."
    generated = (builder.info.metadata or {}).get("generated")
    if generated is None:
        if FLAGS.source == "generated" and builder.name != "math_dataset":
            raise UsageError(
                f"{path} was not generated: it is the release's. Ask for the "
                f"`source` official, {way_out}",
                path=path,
            )
        return
    if FLAGS.source == "official":
        raise UsageError(
            f"{path} was generated. Ask for the `source` generated, {way_out}",
            path=path,
        )
    wanted = split_counts(
        builder.builder_config.name,
        FLAGS.train_examples,
        FLAGS.evaluation_examples,
    )
    seed, counts = generated.get("seed"), generated.get("wanted")
    if (seed, counts) != (FLAGS.seed, wanted):
        raise UsageError(
            f"{path} was generated with seed {seed} and the counts {counts}. "
            f"Ask for the same, {way_out}",
            path=path,
        )


def _beam_options():
    if FLAGS.beam_pipeline_options is None:
        return None
    from apache_beam.options.pipeline_options import PipelineOptions

    return PipelineOptions(
        [f"--{o}" for o in FLAGS.beam_pipeline_options.split(",") if o]
    )


if __name__ == "__main__":
    _cli.run(main, check, resumes=True)
