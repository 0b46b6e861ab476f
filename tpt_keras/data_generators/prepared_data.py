"""The datasets of a data folder: where they are, and how they are made."""

import errno
import json
import pathlib
import shutil

import tensorflow_datasets as tfds

from tpt_keras.data_generators.local_download_manager import (
    LocalDownloadManager,
)
from tpt_keras.data_generators.mathematics_dataset import MathematicsDataset
from tpt_keras.data_generators.mathematics_modules import MODULES
from tpt_keras.data_generators.mathematics_modules import SPLITS
from tpt_keras.data_generators.mathematics_modules import TRAIN_SPLITS
from tpt_keras.data_generators.problem_source import ProblemSource
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names
from tpt_keras.errors import command
from tpt_keras.files import folder_lock
from tpt_keras.files import is_pattern

# Every dataset's own name of a split; the stock one joins the difficulties and
# has no extrapolation.
DATASETS = {
    "mathematics_dataset": {split: split for split in SPLITS},
    "math_dataset": {"train": "train", "interpolate": "test"},
}


def train_splits(dataset):
    """The splits of a dataset that are for training.

    Args:
        dataset: One of `DATASETS`.
    """
    check_names("dataset", [dataset], DATASETS)
    return [
        split
        for split in DATASETS[dataset]
        if split in (*TRAIN_SPLITS, "train")
    ]


def dataset_builder(
    module, data_dir, dataset="mathematics_dataset", with_beam=False
):
    """The builder of a module's dataset, prepared or not.

    Args:
        module: Name of a training module.
        data_dir: The data folder.
        dataset: `"mathematics_dataset"`, ours, or `"math_dataset"`, the stock
            one.
        with_beam: Whether ours is to be written with Apache Beam.

    Returns:
        A builder of TensorFlow Datasets.

    Raises:
        UsageError: If a name is unknown, the folder's name is a pattern, or
            what describes the prepared dataset is damaged.
    """
    check_names("module", [module], MODULES)
    check_names("dataset", [dataset], DATASETS)
    if is_pattern(data_dir):
        # tfds would write datasets there and find none.
        raise UsageError(
            f"The data folder {str(data_dir)!r} has a character of patterns "
            "(*, ?, [ or \\), which TensorFlow Datasets takes for one: name "
            "another with --data_dir."
        )
    folder = pathlib.Path(data_dir) / dataset / module
    try:
        if dataset == "math_dataset":
            builder = tfds.builder(f"math_dataset/{module}", data_dir=data_dir)
        else:
            builder = MathematicsDataset(
                config=module, data_dir=data_dir, with_beam=with_beam
            )
        # tfds reads one of them at once and the others some time.
        for path in builder.data_path.glob("*.json"):
            json.loads(path.read_bytes())
    except OSError:
        raise
    except Exception as error:  # of all kinds: what reads JSON, and assertions
        info = next(folder.glob("*/dataset_info.json"), None)
        if info is None:
            raise
        reason = str(error).rpartition("\n")[2]
        raise UsageError(
            f"The description (*.json) of the dataset in {info.parent} is "
            f"damaged ({reason}). Remove this folder. "
            + _make_again([module], data_dir, dataset)
        ) from error
    return builder


def problem_sources(data_dir, modules, splits, dataset="mathematics_dataset"):
    """The problems of some splits of modules.

    Args:
        data_dir: Folder that `experiments.prepare_data` filled.
        modules: Names of training modules.
        splits: Names of splits; one that a module lacks is passed over.
        dataset: One of `DATASETS`.

    Returns:
        Dict of module to a `ProblemSource`, which may be empty.

    Raises:
        UsageError: If a name is unknown, modules were not prepared, or what
            was prepared is damaged.
    """
    check_names("dataset", [dataset], DATASETS)
    check_names("split", splits, DATASETS[dataset])
    check_names("module", modules, MODULES)
    if not pathlib.Path(data_dir).is_dir():
        raise UsageError(
            f"There is no data folder {str(data_dir)!r}. "
            + _make_again(modules, data_dir, dataset)
        )
    builders = {
        module: dataset_builder(module, data_dir, dataset) for module in modules
    }
    missing = [m for m in modules if not builders[m].is_prepared()]
    if missing:
        raise UsageError(
            f"The data folder {str(data_dir)!r} lacks the {dataset} of "
            f"{', '.join(missing)}. {_make_again(missing, data_dir, dataset)}"
        )
    names = [DATASETS[dataset][split] for split in splits]
    return {
        module: _prepared_source(
            builder, names, _make_again([module], data_dir, dataset)
        )
        for module, builder in builders.items()
    }


def _prepared_source(builder, names, again):
    """The problems of a builder's splits of some names."""
    splits = [builder.info.splits[n] for n in names if n in builder.info.splits]
    paths = [path for split in splits for path in split.filepaths]
    for path in paths:
        if not pathlib.Path(path).is_file():
            raise UsageError(
                f"The file {path} of a prepared dataset is gone. Remove its "
                f"folder. {again}"
            )
    source = ProblemSource(paths)
    expected = sum(split.num_examples for split in splits)
    if len(source) != expected:
        raise UsageError(
            f"The folder {builder.data_path} holds {len(source)} problems of "
            f"{', '.join(names)}, but its dataset_info.json says {expected}. "
            f"Remove the folder. {again}"
        )
    return source


def _make_again(modules, data_dir, dataset):
    them = "it" if len(modules) == 1 else "them"
    return (
        f"Make {them} with {command('prepare_data')} "
        f"--modules={','.join(modules)} --data_dir={data_dir} "
        f"--dataset={dataset}."
    )


def prepare_dataset(
    module,
    data_dir,
    text_dir,
    dataset="mathematics_dataset",
    beam_options=None,
):
    """Makes a module's dataset from files in the official layout.

    Args:
        module: Name of a training module.
        data_dir: The data folder.
        text_dir: Folder that holds `mathematics_dataset-v1.0`.
        dataset: One of `DATASETS`.
        beam_options: Apache Beam's pipeline options, to write with Beam.

    Returns:
        The builder, prepared.

    Raises:
        UsageError: If a name is unknown, a file is missing or damaged, or
            another process prepares the dataset.
    """
    described = (module, data_dir, dataset, beam_options is not None)
    folder = dataset_builder(*described).data_path.parent
    with folder_lock(folder, "prepares a dataset"):
        # Another process may have prepared it just now.
        builder = dataset_builder(*described)
        _prepare(builder, text_dir, beam_options)
    return builder


def _prepare(builder, text_dir, beam_options):
    if not builder.is_prepared():
        # tfds takes a folder for prepared that merely exists.
        shutil.rmtree(builder.data_path, ignore_errors=True)
    config = tfds.download.DownloadConfig(
        manual_dir=text_dir, beam_options=beam_options
    )
    if builder.name == "math_dataset":
        # Its own code, but with the archive that is there already.
        builder._make_download_manager = lambda **_: LocalDownloadManager(
            text_dir, builder.builder_config.name
        )
    try:
        builder.download_and_prepare(download_config=config)
    except Exception as error:
        _raise_cause(error)
        raise
    # Finds the records' places now rather than when training starts.
    for name in builder.info.splits:
        ProblemSource(builder.info.splits[name].filepaths)


def _raise_cause(error):
    """Raises what the user can mend, of what was made of it on its way."""
    import tensorflow as tf

    while error is not None:
        if isinstance(error, UsageError) or getattr(error, "errno", None):
            raise error from None
        if isinstance(error, tf.errors.ResourceExhaustedError):
            raise OSError(errno.ENOSPC, error.message) from None
        error = error.__cause__ or error.__context__
