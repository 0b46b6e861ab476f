"""The Mathematics Dataset as a task."""

import functools
import pathlib

from tpt_keras.data_generators.mathematics.modules import EVALUATION_SPLITS
from tpt_keras.data_generators.mathematics.modules import MODULES
from tpt_keras.data_generators.mathematics.modules import SPLITS
from tpt_keras.data_generators.mathematics.modules import TRAIN_SPLITS
from tpt_keras.data_generators.mathematics.modules import select_modules
from tpt_keras.data_generators.task import TRAIN
from tpt_keras.data_generators.task import Task
from tpt_keras.data_generators.token_cache import open_cache
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.errors import check_choices
from tpt_keras.tokenizers.character_tokenizer import MATHEMATICS_VOCABULARY

# Each dataset's own names of the splits. The stock one joins the difficulties
# and lacks extrapolation.
DATASETS = {
    "mathematics_dataset": {split: split for split in SPLITS},
    "math_dataset": {TRAIN: "train", "interpolate": "test"},
}


class MathematicsTask(Task):
    """DeepMind's Mathematics Dataset; its groups are modules.

    Args:
        data_dir: Folder that `experiments.prepare_data` filled.
        groups: Names of modules.

    Raises:
        UsageError: If a name is unknown, modules were not prepared, or a
            prepared dataset is damaged.

    Example:

    ```python
    task = MathematicsTask("data", ["numbers__place_value"])
    examples = task.examples("interpolate")["numbers__place_value"]
    print(examples.texts([0, 1]))
    ```
    """

    name = "mathematics_dataset"
    splits = EVALUATION_SPLITS
    known_splits = (TRAIN, *DATASETS[name])
    vocabulary = MATHEMATICS_VOCABULARY

    def __init__(self, data_dir, groups):
        check_choices("module", groups, MODULES)
        self.groups = tuple(groups)
        if not pathlib.Path(data_dir).is_dir():
            raise UsageError(
                f"There is no data folder {str(data_dir)!r}. Prepare it first.",
                field="data_dir",
                path=data_dir,
                remedy=making(groups, data_dir, self.name),
            )
        missing = [
            group
            for group in groups
            if prepared_folder(group, data_dir, self.name) is None
        ]
        if missing:
            raise UsageError(
                f"The data folder {str(data_dir)!r} lacks the {self.name} of "
                f"{', '.join(missing)}. Prepare them first.",
                field="data_dir",
                path=data_dir,
                remedy=making(missing, data_dir, self.name),
            )
        self._caches = {
            group: open_module(group, data_dir, self.name) for group in groups
        }

    @staticmethod
    def select_groups(data_dir, patterns):
        if not patterns:
            raise UsageError(
                "`modules` is missing. Name some, or say all.", field="modules"
            )
        return select_modules(patterns)

    def training_examples(self):
        return self._examples((*TRAIN_SPLITS, TRAIN))

    def examples(self, split):
        check_choice("split", split, self.known_splits)
        if split == TRAIN:
            return self.training_examples()
        return self._examples([split])

    def _examples(self, splits):
        found = {
            group: cache.examples(splits)
            for group, cache in self._caches.items()
        }
        return {group: each for group, each in found.items() if len(each)}


class StockMathematicsTask(MathematicsTask):
    """TensorFlow Datasets' own `math_dataset`, without extrapolation."""

    name = "math_dataset"
    splits = ("interpolate",)
    known_splits = tuple(DATASETS[name])


def open_module(module, data_dir, dataset):
    """Opens the `TokenCache` of a module's prepared dataset."""
    return open_cache(
        prepared_folder(module, data_dir, dataset),
        MATHEMATICS_VOCABULARY,
        functools.partial(_read_prepared, module, data_dir, dataset),
    )


def _read_prepared(*described):
    # TensorFlow Datasets is not needed where the cache is already there.
    from tpt_keras.data_generators.mathematics.datasets import read_prepared

    return read_prepared(*described)


def prepared_folder(module, data_dir, dataset):
    """The folder of a prepared dataset, or `None` if there is none."""
    folder = pathlib.Path(data_dir) / dataset / module
    infos = sorted(folder.glob("*/dataset_info.json"))
    return infos[-1].parent if infos else None


def making(modules, data_dir, dataset):
    """The remedy for missing datasets, as `UsageError` takes it."""
    options = {"modules": modules, "data_dir": data_dir, "dataset": dataset}
    return "prepare_data", options
