"""Fills a data folder with problems that the generator makes on the spot.

    python -m experiments.prepare_data --modules=numbers__place_value \
        --data_dir=data --train_examples=200000
"""

import json
import os
import pathlib

from absl import flags

from experiments import _cli
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names

FLAGS = flags.FLAGS

flags.DEFINE_list("modules", [], "Names of the modules to make.")
flags.DEFINE_string("data_dir", "data", "Folder to fill.")
flags.DEFINE_integer("train_examples", 100_000, "Per module.")
flags.DEFINE_integer("evaluation_examples", 10_000, "Per module and split.")
flags.DEFINE_integer("seed", 0, "The problems depend on nothing else.")
flags.DEFINE_integer("num_workers", os.cpu_count(), "Number of processes.")


def main():
    from tpt_keras.data_generators import official_text
    from tpt_keras.data_generators.mathematics_modules import MODULES
    from tpt_keras.data_generators.prepared_data import dataset_builder
    from tpt_keras.data_generators.prepared_data import prepare_dataset
    from tpt_keras.data_generators.problem_generation import generate_modules

    if not FLAGS.modules:
        raise UsageError(
            f"--modules is missing. Known modules: {', '.join(MODULES)}."
        )
    check_names("module", FLAGS.modules, MODULES)
    for name in ("train_examples", "evaluation_examples", "num_workers"):
        if FLAGS[name].value <= 0:
            raise UsageError(f"--{name} must be positive.")

    missing = []
    for module in FLAGS.modules:
        builder = dataset_builder(module, FLAGS.data_dir)
        if builder.is_prepared():
            print(f"{module} is there already: {builder.data_path}")
        else:
            missing.append(module)
    manual_dir = pathlib.Path(FLAGS.data_dir) / (
        f"generated-seed{FLAGS.seed}-train{FLAGS.train_examples}"
        f"-evaluation{FLAGS.evaluation_examples}"
    )
    generate_modules(
        missing,
        manual_dir / official_text.FOLDER,
        FLAGS.train_examples,
        FLAGS.evaluation_examples,
        seed=FLAGS.seed,
        num_workers=FLAGS.num_workers,
    )
    for module in missing:
        prepare_dataset(module, FLAGS.data_dir, manual_dir)
        builder = dataset_builder(module, FLAGS.data_dir)
        generated = builder.info.metadata["generated"]
        print(f"{builder.data_path}: {json.dumps(generated)}")


if __name__ == "__main__":
    _cli.run(main)
