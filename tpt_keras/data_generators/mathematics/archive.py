"""The Mathematics Dataset: its modules, splits, text files and release.

A problem takes two lines, its question and its answer:

    mathematics_dataset-v1.0/train-easy/numbers__place_value.txt
    mathematics_dataset-v1.0/interpolate/...
    mathematics_dataset-v1.0/extrapolate/numbers__place_value_big.txt

An extrapolation module has a name of its own.
"""

import itertools
import json
import pathlib
import shutil
import sys
import tarfile
import zlib

import tqdm

from tpt_keras.data_generators.task import TRAIN
from tpt_keras.errors import UsageError
from tpt_keras.files import folder_lock
from tpt_keras.files import reading
from tpt_keras.files import whole_file
from tpt_keras.tokenizers.character_tokenizer import CHARACTERS

# Difficulties are thirds of a module's range of entropy.
TRAIN_SPLITS = ("train_easy", "train_medium", "train_hard")
EVALUATION_SPLITS = ("interpolate", "extrapolate")
SPLITS = TRAIN_SPLITS + EVALUATION_SPLITS

MODULES = (
    "algebra__linear_1d",
    "algebra__linear_1d_composed",
    "algebra__linear_2d",
    "algebra__linear_2d_composed",
    "algebra__polynomial_roots",
    "algebra__polynomial_roots_composed",
    "algebra__sequence_next_term",
    "algebra__sequence_nth_term",
    "arithmetic__add_or_sub",
    "arithmetic__add_or_sub_in_base",
    "arithmetic__add_sub_multiple",
    "arithmetic__div",
    "arithmetic__mixed",
    "arithmetic__mul",
    "arithmetic__mul_div_multiple",
    "arithmetic__nearest_integer_root",
    "arithmetic__simplify_surd",
    "calculus__differentiate",
    "calculus__differentiate_composed",
    "comparison__closest",
    "comparison__closest_composed",
    "comparison__kth_biggest",
    "comparison__kth_biggest_composed",
    "comparison__pair",
    "comparison__pair_composed",
    "comparison__sort",
    "comparison__sort_composed",
    "measurement__conversion",
    "measurement__time",
    "numbers__base_conversion",
    "numbers__div_remainder",
    "numbers__div_remainder_composed",
    "numbers__gcd",
    "numbers__gcd_composed",
    "numbers__is_factor",
    "numbers__is_factor_composed",
    "numbers__is_prime",
    "numbers__is_prime_composed",
    "numbers__lcm",
    "numbers__lcm_composed",
    "numbers__list_prime_factors",
    "numbers__list_prime_factors_composed",
    "numbers__place_value",
    "numbers__place_value_composed",
    "numbers__round_number",
    "numbers__round_number_composed",
    "polynomials__add",
    "polynomials__coefficient_named",
    "polynomials__collect",
    "polynomials__compose",
    "polynomials__evaluate",
    "polynomials__evaluate_composed",
    "polynomials__expand",
    "polynomials__simplify_power",
    "probability__swr_p_level_set",
    "probability__swr_p_sequence",
)

# The training modules that have an extrapolation module, and its name.
EXTRAPOLATION_MODULES = {
    "algebra__polynomial_roots": "algebra__polynomial_roots_big",
    "arithmetic__add_or_sub": "arithmetic__add_or_sub_big",
    "arithmetic__add_sub_multiple": "arithmetic__add_sub_multiple_longer",
    "arithmetic__div": "arithmetic__div_big",
    "arithmetic__mixed": "arithmetic__mixed_longer",
    "arithmetic__mul": "arithmetic__mul_big",
    "arithmetic__mul_div_multiple": "arithmetic__mul_div_multiple_longer",
    "comparison__closest": "comparison__closest_more",
    "comparison__kth_biggest": "comparison__kth_biggest_more",
    "comparison__sort": "comparison__sort_more",
    "measurement__conversion": "measurement__conversion",
    "numbers__place_value": "numbers__place_value_big",
    "numbers__round_number": "numbers__round_number_big",
    "probability__swr_p_level_set": (
        "probability__swr_p_level_set_more_samples"
    ),
    "probability__swr_p_sequence": "probability__swr_p_sequence_more_samples",
}

# The splits of each dataset that make up a split of the task. The stock one
# joins the difficulties and lacks extrapolation.
DATASETS = {
    "mathematics_dataset": {
        TRAIN: TRAIN_SPLITS,
        "interpolate": ("interpolate",),
        "extrapolate": ("extrapolate",),
    },
    "math_dataset": {TRAIN: ("train",), "interpolate": ("test",)},
}

# Of the prepared datasets.
DATASET_VERSION = "1.0.0"

URL = (
    "https://storage.googleapis.com/mathematics-dataset/"
    "mathematics_dataset-v1.0.tar.gz"
)
SHA256 = "def638343403cb9ed60437d6b684c859dd23b72779f5cc5661b0a31e67c58576"
FOLDER = "mathematics_dataset-v1.0"
_ADVICE = "Fetch or generate it again, or leave its module out."


def joined_splits(splits, dataset):
    """The task's splits, of those of a dataset: dicts of iterables."""
    return {
        split: itertools.chain.from_iterable(
            splits[name] for name in names if name in splits
        )
        for split, names in DATASETS[dataset].items()
    }


def split_module(split, module):
    """Name of a training module in a split, or `None` if the split lacks it."""
    if split == "extrapolate":
        return EXTRAPOLATION_MODULES.get(module)
    return module


def text_path(root, split, module):
    """The file of a training module's problems of a split, or `None`."""
    name = split_module(split, module)
    if name is None:
        return None
    return pathlib.Path(root) / split.replace("_", "-") / f"{name}.txt"


def report_path(root, module):
    """The report of a module that was generated."""
    return root / f"{module}.json"


def write_problems(path, problems):
    """Writes pairs of question and answer to a file, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        whole_file(path) as partial,
        partial.open("w", encoding="ascii") as file,
    ):
        for question, answer in problems:
            file.write(f"{question}\n{answer}\n")


def read_problems(path):
    """Yields the problems of one file as pairs of question and answer.

    Raises:
        UnreadableFileError: If the file is missing, empty or cut off, or has
            an unknown character.
    """
    known = set(CHARACTERS)
    number, question = 0, None
    with reading(path, _ADVICE), path.open(encoding="latin-1") as file:
        for number, line in enumerate(file, start=1):
            text = line.removesuffix("\n")
            if not text or text == line:
                raise ValueError(f"line {number} is empty or cut off")
            if not known.issuperset(text):
                unknown = min(set(text) - known)
                raise ValueError(
                    f"line {number} has the unknown character {unknown!r}"
                )
            if number % 2:
                question = text
            else:
                yield question, text
        if number == 0 or number % 2:
            raise ValueError(f"it ends after line {number}")


def read_module(root, module):
    """Reads the text files of a module, without what training may not have.

    Some of the release's training problems are also in its evaluation splits.

    Returns:
        Dict of the splits that the module has to iterators of pairs, and a
        dict with their origin: the report of the generation, or the number of
        training problems that are left out.
    """
    paths = text_paths(root, module)
    evaluation = set()
    if report := _read_report(root, module):
        origin = {"generated": report}
    else:
        evaluation.update(_questions(paths, EVALUATION_SPLITS))
        found = (q in evaluation for q in _questions(paths, TRAIN_SPLITS))
        origin = {"also_in_evaluation": sum(found)}

    def read(split):
        excluded = evaluation if split in TRAIN_SPLITS else ()
        for question, answer in read_problems(paths[split]):
            if question not in excluded:
                yield question, answer

    return {split: read(split) for split in paths}, origin


def text_paths(root, module):
    """The text files of the splits that a module has, as a dict."""
    paths = {split: text_path(root, split, module) for split in SPLITS}
    counts = _read_report(root, module).get("examples", {})
    return {s: path for s, path in paths.items() if path and counts.get(s, 1)}


def _read_report(root, module):
    path = report_path(root, module)
    if not path.exists():
        return {}
    with reading(path, "Remove it, and its module is generated again."):
        return dict(json.loads(path.read_bytes()))


def _questions(paths, splits):
    for split in splits:
        if split in paths:
            for question, _ in read_problems(paths[split]):
                yield question


def fetch_official_text(data_dir, modules, archive=None):
    """Downloads and unpacks the files of modules that are missing.

    The `archive` may be there already. Returns the folder that holds
    `mathematics_dataset-v1.0`, which may also have been unpacked by hand.
    """
    text_dir = pathlib.Path(data_dir) / "official"
    archive = archive and pathlib.Path(archive)
    if archive and not archive.is_file():
        raise UsageError(
            f"There is no archive {str(archive)!r}. If it is unpacked already, "
            f"link its folder to {str(text_dir / FOLDER)!r}.",
            field="archive",
        )
    with folder_lock(text_dir, "unpacks the archive"):
        missing = {
            path.relative_to(text_dir)
            for module in modules
            for path in text_paths(text_dir / FOLDER, module).values()
            if not path.exists()
        }
        if missing:
            _unpack(archive or _download(data_dir), text_dir, missing)
    return text_dir


def _download(data_dir):
    import keras  # slow

    if not sys.stdout.isatty():
        # Keras would print a progress bar of control characters.
        keras.config.disable_interactive_logging()
    try:
        path = keras.utils.get_file(
            URL.rpartition("/")[2],
            URL,
            file_hash=SHA256,
            cache_dir=data_dir,
            cache_subdir="downloads",
        )
    except Exception as error:  # Keras raises errors of many kinds
        raise UsageError(
            f"The download of {URL} failed ({error}). Name a copy of yours as "
            "`archive`, or generate the problems (`source`).",
            field="archive",
        ) from error
    return pathlib.Path(path)


def _unpack(archive, text_dir, missing):
    partial = text_dir / "partial"
    shutil.rmtree(partial, ignore_errors=True)  # of a killed process
    try:
        _copy_members(archive, missing, partial)
        for path in missing:
            (text_dir / path).parent.mkdir(parents=True, exist_ok=True)
            (partial / path).replace(text_dir / path)
    except (EOFError, OSError, tarfile.TarError, zlib.error) as error:
        if getattr(error, "errno", None):
            raise  # of the disk
        with reading(archive, f"Fetch it again: {URL}."):
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _copy_members(archive, wanted, folder):
    wanted = set(wanted)
    with tarfile.open(archive) as tar:
        for member in tqdm.tqdm(tar, desc=f"Unpacking {archive.name}"):
            path = pathlib.Path(member.name)
            if path in wanted and member.isfile():
                wanted.remove(path)
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                with (folder / path).open("wb") as file:
                    shutil.copyfileobj(tar.extractfile(member), file)
        # tarfile takes damage for the end. The checksum comes after it.
        while tar.fileobj.read(1 << 20):
            pass
    if wanted:
        raise EOFError(f"it lacks {min(wanted)}")
