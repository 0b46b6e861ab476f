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
import time

from absl import flags

from tpt_keras.data_generators import select_groups
from tpt_keras.data_generators import text_pairs
from tpt_keras.data_generators.mathematics import archive
from tpt_keras.data_generators.mathematics import generator
from tpt_keras.data_generators.mathematics import task
from tpt_keras.errors import BusyFolderError
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.processes import available_cores
from tpt_keras.processes import named_when_killed
from tpt_keras.processes import raise_if_interrupted

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
flags.DEFINE_string(
    "difficulties", "1:1:1", "Shares of easy, medium and hard problems."
)
flags.DEFINE_string(
    "exclude",
    None,
    "JSON lines of questions that the generated training problems lack.",
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
    for name in ("problems", "difficulties", "exclude"):
        # The stock dataset has no metadata, which would tell its settings.
        for other in ("source", "format" if name == "problems" else "dataset"):
            flag = FLAGS[other]
            if FLAGS[name].present and flag.value != flag.default:
                raise UsageError(
                    f"`{name}` needs the default of `{other}`.", field=other
                )


def main():
    if FLAGS.problems:
        write_problems()
        return
    settings = {
        "shares": generator.parse_difficulties(FLAGS.difficulties),
        "excluded": generator.read_excluded(FLAGS.exclude),
    }
    is_prepared, prepare = format_functions()
    missing = []
    for module in select_groups(FLAGS.dataset, FLAGS.data_dir, FLAGS.modules):
        if is_prepared(module, FLAGS.data_dir, FLAGS.dataset):
            check_settings(module, **settings)
            folder = task.prepared_folder(module, FLAGS.data_dir, FLAGS.dataset)
            print(f"{module} is there already: {folder}")
        else:
            missing.append(module)
    if not missing:
        return
    text_dir = make_texts(missing, FLAGS.train_examples, **settings)
    for module in missing:
        raise_if_interrupted()
        try:
            prepare(module, FLAGS.data_dir, text_dir, FLAGS.dataset)
        except BusyFolderError:
            missing.append(module)  # the other process may die
            time.sleep(1)
            continue
        folder = task.prepared_folder(module, FLAGS.data_dir, FLAGS.dataset)
        splits, _ = task.open_module(module, FLAGS.data_dir, FLAGS.dataset)
        counts = {split: len(examples) for split, examples in splits.items()}
        print(f"{folder}: {json.dumps(counts)}")


def format_functions():
    if FLAGS.format == "tokens":
        return task.prepared_folder, task.prepare_tokens
    _cli.import_tensorflow()
    from tpt_keras.data_generators.mathematics import datasets

    def is_prepared(*described):
        return datasets.dataset_builder(*described).is_prepared()

    return is_prepared, datasets.prepare_dataset


def write_problems():
    """Writes the evaluation problems of generated modules to a file."""
    modules = task.MathematicsTask.select_groups(FLAGS.data_dir, FLAGS.modules)
    root = make_texts(modules, train_examples=0) / archive.FOLDER
    problems = [
        text_pairs.Pair(question, answer, module, split)
        for split in archive.EVALUATION_SPLITS
        for module in modules
        if (path := archive.text_path(root, split, module))
        for question, answer in archive.read_problems(path)
    ]
    source = generator.problem_source(FLAGS.seed)
    text_pairs.write_pairs(FLAGS.problems, problems, source=source)
    print(f"{FLAGS.problems}: {len(problems)} problems")


def make_texts(modules, train_examples, shares=(1, 1, 1), excluded=frozenset()):
    """Makes text files in the official layout and returns their folder."""
    if FLAGS.source == "official":
        _cli.import_backend()  # Keras downloads it
        source = FLAGS.data_dir, modules, FLAGS.archive
        return archive.fetch_official_text(*source)
    counts = (train_examples, FLAGS.evaluation_examples)
    text_dir = pathlib.Path(FLAGS.data_dir) / (
        "generated-seed{}-train{}-evaluation{}".format(FLAGS.seed, *counts)
        + (f"-cost{FLAGS.max_cost:g}" if FLAGS.max_cost else "")
        + "-difficulties{}-{}-{}".format(*shares) * (len({*shares}) > 1)
        + (f"-excluded{generator.keys_hash(excluded)}" if excluded else "")
    )
    with named_when_killed("num_workers"):
        generator.generate_modules(
            modules,
            text_dir / archive.FOLDER,
            *counts,
            FLAGS.seed,
            FLAGS.num_workers or available_cores(),
            excluded,
            max_cost=FLAGS.max_cost,
            shares=shares,
        )
    return text_dir


def check_settings(module, shares, excluded):
    """Refuses a prepared module that was made with other settings."""
    if FLAGS.dataset == "math_dataset":
        return  # the stock dataset has no metadata
    wanted = {}
    if FLAGS.source == "generated":
        counts = FLAGS.train_examples, FLAGS.evaluation_examples, FLAGS.max_cost
        counts = generator.split_counts(module, *counts, shares)
        wanted = {"seed": FLAGS.seed, "wanted": counts}
        if excluded:
            wanted["excluded"] = generator.keys_hash(excluded)
    _, origin = task.open_module(module, FLAGS.data_dir, FLAGS.dataset)
    found = origin.get("generated", {})
    names = ("seed", "wanted", "excluded")
    found = {name: found[name] for name in names if name in found}
    if wanted != found:
        folder = task.prepared_folder(module, FLAGS.data_dir, FLAGS.dataset)
        made = f"was generated with {found}" if found else "is the release's"
        raise UsageError(
            f"{folder} {made}. Ask for the same `source` and settings, remove "
            "the folder, or name another `data_dir`.",
            path=folder,
        )
