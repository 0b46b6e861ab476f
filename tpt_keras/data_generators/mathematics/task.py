"""The prepared Mathematics Dataset as tasks."""

import pathlib
import textwrap
from collections.abc import Sequence
from typing import Any

from tpt_keras.data_generators.examples import Examples
from tpt_keras.data_generators.mathematics import archive
from tpt_keras.data_generators.task import TRAIN
from tpt_keras.data_generators.task import Task
from tpt_keras.data_generators.task import matching_groups
from tpt_keras.data_generators.text_pairs import DELIMITERS
from tpt_keras.data_generators.token_cache import NAME
from tpt_keras.data_generators.token_cache import open_cache
from tpt_keras.data_generators.token_cache import write_cache
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.tokenizers.character_tokenizer import MATHEMATICS_VOCABULARY
from tpt_keras.typing import StrPath


class MathematicsTask(Task):
    """DeepMind's Mathematics Dataset; its groups are modules.

    Args:
        data_dir: Folder that `tpt_keras prepare_data` filled.
        groups: Names of modules, or patterns.

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
    splits: tuple[str, ...] = archive.EVALUATION_SPLITS
    vocabulary = MATHEMATICS_VOCABULARY

    def __init__(self, data_dir: StrPath, groups: Sequence[str]) -> None:
        self.groups = self.select_groups(data_dir, groups)
        missing = [
            group
            for group in self.groups
            if prepared_folder(group, data_dir, self.name) is None
        ]
        if missing:
            names = textwrap.shorten(", ".join(missing), 90)
            raise UsageError(
                f"The data folder {str(data_dir)!r} lacks the {self.name} of "
                f"{names}. Prepare these `modules` first (prepare_data).",
                field="data_dir",
                path=data_dir,
            )
        self._examples = {
            group: open_module(group, data_dir, self.name)[0]
            for group in self.groups
        }

    @staticmethod
    def select_groups(data_dir, patterns):
        if pathlib.Path(data_dir).suffix.lower() in DELIMITERS:
            raise UsageError(
                "A file of pairs needs the `dataset` text_pairs.", "dataset"
            )
        if not patterns:
            raise UsageError(
                "`modules` is missing. Name some, or say all.", field="modules"
            )
        return matching_groups(patterns, archive.MODULES)

    def examples(self, split):
        check_choice("split", split, (TRAIN, *self.splits))
        return {
            group: splits[split]
            for group, splits in self._examples.items()
            if len(splits.get(split, ()))
        }


class StockMathematicsTask(MathematicsTask):
    """TensorFlow Datasets' own `math_dataset`, without extrapolation."""

    name = "math_dataset"
    splits = ("interpolate",)


def open_module(
    module: str, data_dir: StrPath, dataset: str
) -> tuple[dict[str, Examples], dict[str, Any]]:
    """Opens the token cache of a module's prepared dataset."""

    def read():
        # An existing cache needs no TensorFlow Datasets.
        from tpt_keras.data_generators.mathematics.datasets import read_prepared

        return read_prepared(module, data_dir, dataset)

    folder = prepared_folder(module, data_dir, dataset)
    return open_cache(folder, MATHEMATICS_VOCABULARY, read)


def prepare_tokens(
    module: str,
    data_dir: StrPath,
    text_dir: StrPath,
    dataset: str = "mathematics_dataset",
) -> None:
    """Makes a module's token cache alone, from files in the official layout.

    It holds the examples of the dataset that TensorFlow Datasets would make.
    `text_dir` is the folder that holds `mathematics_dataset-v1.0`.
    """
    root = pathlib.Path(text_dir) / archive.FOLDER
    splits, origin = archive.read_module(root, module)
    write_cache(
        pathlib.Path(data_dir) / dataset / module / archive.DATASET_VERSION,
        MATHEMATICS_VOCABULARY,
        archive.joined_splits(splits, dataset),
        origin,
    )


def prepared_folder(
    module: str, data_dir: StrPath, dataset: str
) -> pathlib.Path | None:
    """The folder of a prepared dataset, or `None` if there is none."""
    folder = pathlib.Path(data_dir) / dataset / module
    files = (
        *folder.glob("[0-9]*/dataset_info.json"),
        *folder.glob(f"[0-9]*/{NAME}/cache.json"),
    )
    versions = {file.relative_to(folder).parts[0] for file in files}
    return folder / max(versions) if versions else None
