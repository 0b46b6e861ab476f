r"""Fills a data folder with problems.

They become a dataset of TensorFlow Datasets. Makes them on the spot:

    python -m experiments.prepare_data --modules=all --data_dir=data

or takes the released archive, downloaded or already there:

    python -m experiments.prepare_data --source=official --data_dir=data \
        --modules=all --archive=mathematics_dataset-v1.0.tar.gz
"""

import json
import os
import pathlib

from absl import flags

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names

from . import _cli

FLAGS = flags.FLAGS

flags.DEFINE_list(
    "modules", [], "Names of modules, patterns (numbers__*), or all."
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
flags.DEFINE_integer("seed", 0, "What is generated depends on nothing else.")
flags.DEFINE_integer("num_workers", os.cpu_count(), "Number of processes.")
flags.DEFINE_string(
    "beam_pipeline_options",
    None,
    "Generates with Apache Beam: its options, separated by commas "
    "(runner=DirectRunner,direct_num_workers=2).",
)


def main():
    from tpt_keras.data_generators.mathematics_modules import select_modules
    from tpt_keras.data_generators.prepared_data import DATASETS
    from tpt_keras.data_generators.prepared_data import dataset_builder
    from tpt_keras.data_generators.prepared_data import prepare_dataset

    if not FLAGS.modules:
        raise UsageError("--modules is missing: name some, or say all.")
    modules = select_modules(FLAGS.modules)
    check_names("source", [FLAGS.source], ("generated", "official"))
    check_names("dataset", [FLAGS.dataset], DATASETS)
    for name in ("train_examples", "evaluation_examples", "num_workers"):
        if FLAGS[name].value <= 0:
            raise UsageError(f"--{name} must be positive.")

    missing = []
    for module in modules:
        builder = dataset_builder(module, FLAGS.data_dir, FLAGS.dataset)
        if builder.is_prepared():
            check_as_asked(builder)
            print(f"{module} is there already: {builder.data_path}")
        else:
            missing.append(module)
    if not missing:
        return
    beam_options = _beam_options()
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
    """Text files of the modules in the official layout; their folder."""
    from tpt_keras.data_generators import official_archive
    from tpt_keras.data_generators import official_text
    from tpt_keras.data_generators.problem_generation import generate_modules

    if FLAGS.source == "official":
        return official_archive.fetch_official_text(
            FLAGS.data_dir, modules, FLAGS.archive
        )
    text_dir = pathlib.Path(FLAGS.data_dir) / (
        f"generated-seed{FLAGS.seed}-train{FLAGS.train_examples}"
        f"-evaluation{FLAGS.evaluation_examples}"
    )
    asked = {
        "modules": modules,
        "root": text_dir / official_text.FOLDER,
        "train_examples": FLAGS.train_examples,
        "evaluation_examples": FLAGS.evaluation_examples,
        "seed": FLAGS.seed,
    }
    if beam_options is None:
        generate_modules(num_workers=FLAGS.num_workers, **asked)
    else:
        from tpt_keras.data_generators.beam_generation import (
            generate_modules_with_beam,
        )

        generate_modules_with_beam(options=beam_options, **asked)
    return text_dir


def check_as_asked(builder):
    """Refuses a prepared dataset that was generated otherwise than asked."""
    from tpt_keras.data_generators.problem_generation import split_counts

    generated = (builder.info.metadata or {}).get("generated")
    if generated is None:
        if FLAGS.source == "generated" and builder.name != "math_dataset":
            raise UsageError(
                f"{builder.data_path} was not generated: it is the release's. "
                "Ask for --source=official, remove the folder, or take another "
                "--data_dir."
            )
        return
    if FLAGS.source == "official":
        raise UsageError(
            f"{builder.data_path} was generated. Remove the folder, or take "
            "another --data_dir."
        )
    wanted = split_counts(
        builder.builder_config.name,
        FLAGS.train_examples,
        FLAGS.evaluation_examples,
    )
    seed, counts = generated.get("seed"), generated.get("wanted")
    if (seed, counts) != (FLAGS.seed, wanted):
        raise UsageError(
            f"{builder.data_path} was generated with seed {seed} and the "
            f"counts {counts}. Ask for the same, remove the folder, or take "
            "another --data_dir."
        )


def _beam_options():
    if FLAGS.beam_pipeline_options is None:
        return None
    try:
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError:
        raise UsageError(
            "--beam_pipeline_options needs Apache Beam: pip install "
            "tpt_keras[beam]."
        ) from None
    return PipelineOptions(
        [f"--{o}" for o in FLAGS.beam_pipeline_options.split(",") if o]
    )


if __name__ == "__main__":
    _cli.run(main, resumes=True)
