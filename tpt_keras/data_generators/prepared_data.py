"""Where a data folder's datasets are."""

import pathlib

import tensorflow_datasets as tfds

from tpt_keras.data_generators.mathematics_dataset import MathematicsDataset
from tpt_keras.data_generators.mathematics_modules import MODULES
from tpt_keras.data_generators.mathematics_modules import SPLITS
from tpt_keras.data_generators.problem_source import ProblemSource
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names


def dataset_builder(module, data_dir):
    """The builder of a module's dataset, prepared or not.

    Args:
        module: Name of a training module.
        data_dir: The data folder.

    Returns:
        A `MathematicsDataset`.

    Raises:
        UsageError: If the module is unknown.
    """
    check_names("module", [module], MODULES)
    return MathematicsDataset(config=module, data_dir=data_dir)


def problem_source(data_dir, modules, splits):
    """The problems of some splits of some modules.

    Args:
        data_dir: Folder that `experiments.prepare_data` filled.
        modules: Names of training modules.
        splits: Names of splits; one that a module lacks is passed over.

    Returns:
        A `ProblemSource`.

    Raises:
        UsageError: If a module or a split is unknown, or was not prepared.
    """
    check_names("split", splits, SPLITS)
    check_names("module", modules, MODULES)
    if not pathlib.Path(data_dir).is_dir():
        raise UsageError(
            f"There is no data folder {str(data_dir)!r}. Make it with python "
            f"-m experiments.prepare_data --data_dir={data_dir}."
        )
    paths = []
    for module in modules:
        builder = dataset_builder(module, data_dir)
        if not builder.is_prepared():
            raise UsageError(
                f"The data folder {str(data_dir)!r} holds no finished dataset "
                f"of module {module}. Make it with python -m "
                f"experiments.prepare_data --data_dir={data_dir} "
                f"--modules={module}."
            )
        for split in splits:
            if split in builder.info.splits:
                paths += builder.info.splits[split].filepaths
    return ProblemSource(paths)


def prepare_dataset(module, data_dir, manual_dir):
    """Makes a module's dataset from files in the official layout.

    Args:
        module: Name of a training module.
        data_dir: The data folder.
        manual_dir: Folder that holds `mathematics_dataset-v1.0`.
    """
    dataset_builder(module, data_dir).download_and_prepare(
        download_config=tfds.download.DownloadConfig(manual_dir=manual_dir)
    )
