r"""Fills a data folder with problems.

They become datasets of TensorFlow Datasets, with the token caches that a
training reads. Generates the problems:

    tpt_keras prepare_data --modules=all --data_dir=data

or takes the released archive, downloaded or already there:

    tpt_keras prepare_data --source=official --data_dir=data \
        --modules=all --archive=mathematics_dataset-v1.0.tar.gz

or writes the token caches alone, which are small and need no TensorFlow:

    tpt_keras prepare_data --modules=all --data_dir=data \
        --format=tokens

or writes evaluation problems alone to one file, for models of any kind:

    tpt_keras prepare_data --modules=all --problems=problems.jsonl \
        --evaluation_examples=100
"""

import json
import pathlib

from absl import flags

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice

from . import _cli

FLAGS = flags.FLAGS
RESUMES = True
NEEDS_BACKEND = False

flags.DEFINE_list(
    "modules",
    None,
    "Names of modules, patterns (numbers__*), or all.",
    required=True,
)
flags.DEFINE_string("data_dir", "data", "Folder to fill.")
flags.DEFINE_enum("source", "generated", ["generated", "official"], "Origin.")
flags.DEFINE_enum(
    "dataset",
    "mathematics_dataset",
    ["mathematics_dataset", "math_dataset"],
    "With five splits, or the stock one.",
)
flags.DEFINE_enum(
    "format",
    "tfds",
    ["tfds", "tokens"],
    "Datasets of TensorFlow Datasets with their token caches, or the token "
    "caches alone, which is all that a training reads.",
)
flags.DEFINE_string("archive", None, "The official archive, if already there.")
flags.DEFINE_string(
    "problems",
    None,
    "In place of datasets, a JSON-lines file to write: the generated problems "
    "of the splits for evaluation.",
)
flags.DEFINE_integer(
    "train_examples", 100_000, "Generated, per module.", lower_bound=3
)
flags.DEFINE_integer(
    "evaluation_examples", 10_000, "Generated, each split.", lower_bound=1
)
flags.DEFINE_float(
    "max_cost",
    None,
    "Most time for a module's training problems, in multiples of the median "
    "module's: slower modules get fewer. Default: the same number for all.",
    lower_bound=2,
)
flags.DEFINE_integer("seed", 0, "Seed of the generated problems.")
flags.DEFINE_integer(
    "num_workers",
    None,
    "Number of processes. Default: one for each core.",
    lower_bound=1,
)


def check():
    if FLAGS.format != "tfds":
        check_choice("dataset", FLAGS.dataset, ("mathematics_dataset",))
    if FLAGS.problems and FLAGS.format != "tfds":
        raise UsageError(
            "`problems` are JSON lines: leave `format` out.", field="format"
        )
    if FLAGS.problems and FLAGS.source == "official":
        raise UsageError(
            "`problems` are generated: leave `source` out.", field="source"
        )


def main():
    if FLAGS.problems:
        write_problems()
        return
    from tpt_keras.data_generators import select_groups
    from tpt_keras.data_generators.mathematics.task import open_module
    from tpt_keras.data_generators.mathematics.task import prepared_folder

    is_prepared, prepare = format_functions()
    missing = []
    for module in select_groups(FLAGS.dataset, FLAGS.data_dir, FLAGS.modules):
        if is_prepared(module, FLAGS.data_dir, FLAGS.dataset):
            check_settings(module)
            folder = prepared_folder(module, FLAGS.data_dir, FLAGS.dataset)
            print(f"{module} is there already: {folder}")
        else:
            missing.append(module)
    if not missing:
        return
    text_dir = make_texts(missing, FLAGS.train_examples)
    for module in missing:
        prepare(module, FLAGS.data_dir, text_dir, FLAGS.dataset)
        folder = prepared_folder(module, FLAGS.data_dir, FLAGS.dataset)
        splits, _ = open_module(module, FLAGS.data_dir, FLAGS.dataset)
        counts = {split: len(examples) for split, examples in splits.items()}
        print(f"{folder}: {json.dumps(counts)}")


def format_functions():
    if FLAGS.format == "tokens":
        from tpt_keras.data_generators.mathematics import task

        return task.prepared_folder, task.prepare_tokens
    _cli.import_tensorflow()
    from tpt_keras.data_generators.mathematics import datasets

    def is_prepared(*described):
        return datasets.dataset_builder(*described).is_prepared()

    return is_prepared, datasets.prepare_dataset


def write_problems():
    """Writes the evaluation problems of generated modules to a file."""
    from tpt_keras.data_generators.mathematics import archive
    from tpt_keras.data_generators.mathematics.generator import problem_source
    from tpt_keras.data_generators.mathematics.task import MathematicsTask
    from tpt_keras.data_generators.text_pairs import Pair
    from tpt_keras.data_generators.text_pairs import write_pairs

    modules = MathematicsTask.select_groups(FLAGS.data_dir, FLAGS.modules)
    root = make_texts(modules, train_examples=0) / archive.FOLDER
    problems = [
        Pair(question, answer, module, split)
        for split in archive.EVALUATION_SPLITS
        for module in modules
        if (path := archive.text_path(root, split, module))
        for question, answer in archive.read_problems(path)
    ]
    write_pairs(FLAGS.problems, problems, source=problem_source(FLAGS.seed))
    print(f"{FLAGS.problems}: {len(problems)} problems")


def make_texts(modules, train_examples):
    """Makes text files in the official layout and returns their folder."""
    from tpt_keras.data_generators.mathematics import archive
    from tpt_keras.data_generators.mathematics.generator import generate_modules
    from tpt_keras.processes import available_cores
    from tpt_keras.processes import named_when_killed

    if FLAGS.source == "official":
        _cli.import_backend()  # Keras downloads it
        place = FLAGS.data_dir, modules, FLAGS.archive
        return archive.fetch_official_text(*place)
    counts = (train_examples, FLAGS.evaluation_examples)
    text_dir = pathlib.Path(FLAGS.data_dir) / (
        "generated-seed{}-train{}-evaluation{}".format(FLAGS.seed, *counts)
        + (f"-cost{FLAGS.max_cost:g}" if FLAGS.max_cost else "")
    )
    with named_when_killed("num_workers"):
        generate_modules(
            modules,
            text_dir / archive.FOLDER,
            *counts,
            FLAGS.seed,
            FLAGS.num_workers or available_cores(),
            max_cost=FLAGS.max_cost,
        )
    return text_dir


def check_settings(module):
    """Refuses a prepared module that was made with other settings."""
    from tpt_keras.data_generators.mathematics.generator import split_counts
    from tpt_keras.data_generators.mathematics.task import open_module
    from tpt_keras.data_generators.mathematics.task import prepared_folder

    if FLAGS.dataset == "math_dataset":
        return  # the stock dataset has no metadata
    wanted = {}
    if FLAGS.source == "generated":
        counts = FLAGS.train_examples, FLAGS.evaluation_examples, FLAGS.max_cost
        wanted = {"seed": FLAGS.seed, "wanted": split_counts(module, *counts)}
    _, origin = open_module(module, FLAGS.data_dir, FLAGS.dataset)
    found = origin.get("generated", {})
    found = {name: found.get(name) for name in ("seed", "wanted") if found}
    if wanted != found:
        folder = prepared_folder(module, FLAGS.data_dir, FLAGS.dataset)
        made = f"was generated with {found}" if found else "is the release's"
        raise UsageError(
            f"{folder} {made}. Ask for the same `source` and numbers, remove "
            "the folder, or name another `data_dir`.",
            path=folder,
        )
