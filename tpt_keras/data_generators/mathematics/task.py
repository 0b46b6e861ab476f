"""The Mathematics Dataset as a task: its modules, splits and examples."""

import functools
import pathlib
from collections.abc import Sequence
from typing import Any

from tpt_keras.data_generators.examples import Examples
from tpt_keras.data_generators.task import TRAIN
from tpt_keras.data_generators.task import Task
from tpt_keras.data_generators.task import matching_groups
from tpt_keras.data_generators.token_cache import open_cache
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.tokenizers.character_tokenizer import MATHEMATICS_VOCABULARY
from tpt_keras.typing import StrPath

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

# Every extrapolation module and the training module that it extends.
EXTRAPOLATION_MODULES = {
    "algebra__polynomial_roots_big": "algebra__polynomial_roots",
    "arithmetic__add_or_sub_big": "arithmetic__add_or_sub",
    "arithmetic__add_sub_multiple_longer": "arithmetic__add_sub_multiple",
    "arithmetic__div_big": "arithmetic__div",
    "arithmetic__mixed_longer": "arithmetic__mixed",
    "arithmetic__mul_big": "arithmetic__mul",
    "arithmetic__mul_div_multiple_longer": "arithmetic__mul_div_multiple",
    "comparison__closest_more": "comparison__closest",
    "comparison__kth_biggest_more": "comparison__kth_biggest",
    "comparison__sort_more": "comparison__sort",
    "measurement__conversion": "measurement__conversion",
    "numbers__place_value_big": "numbers__place_value",
    "numbers__round_number_big": "numbers__round_number",
    "probability__swr_p_level_set_more_samples": (
        "probability__swr_p_level_set"
    ),
    "probability__swr_p_sequence_more_samples": "probability__swr_p_sequence",
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

CITATION = """
@inproceedings{saxton2019analysing,
  title={Analysing Mathematical Reasoning Abilities of Neural Models},
  author={Saxton, David and Grefenstette, Edward and Hill, Felix and
          Kohli, Pushmeet},
  booktitle={International Conference on Learning Representations},
  year={2019}
}
"""


class MathematicsTask(Task):
    """DeepMind's Mathematics Dataset; its groups are modules.

    Args:
        data_dir: Folder that `experiments.prepare_data` filled.
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
    splits: tuple[str, ...] = EVALUATION_SPLITS
    vocabulary = MATHEMATICS_VOCABULARY

    def __init__(self, data_dir: StrPath, groups: Sequence[str]) -> None:
        self.groups = self.select_groups(data_dir, groups)
        missing = [
            group
            for group in self.groups
            if prepared_folder(group, data_dir, self.name) is None
        ]
        if missing:
            # The names of nearly all modules would fill the screen.
            names = ", ".join(missing[:3])
            if len(missing) > 3:
                names += f" and {len(missing) - 3} others"
            modules = ["all"] if set(self.groups) == set(MODULES) else missing
            raise UsageError(
                f"The data folder {str(data_dir)!r} lacks the {self.name} of "
                f"{names}. Prepare them first.",
                field="data_dir",
                path=data_dir,
                remedy=making(modules, data_dir, self.name),
            )
        self._examples = {
            group: open_module(group, data_dir, self.name)
            for group in self.groups
        }

    @staticmethod
    def select_groups(
        data_dir: StrPath, patterns: Sequence[str]
    ) -> tuple[str, ...]:
        if not patterns:
            raise UsageError(
                "`modules` is missing. Name some, or say all.", field="modules"
            )
        return matching_groups(patterns, MODULES)

    def examples(self, split: str) -> dict[str, Examples]:
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
) -> dict[str, Examples]:
    """Opens the token cache of a module's prepared dataset."""
    return open_cache(
        prepared_folder(module, data_dir, dataset),
        MATHEMATICS_VOCABULARY,
        functools.partial(_read_prepared, module, data_dir, dataset),
    )


def _read_prepared(*described):
    # TensorFlow Datasets is not needed where the cache is already there.
    from tpt_keras.data_generators.mathematics.datasets import read_prepared

    return read_prepared(*described)


def prepared_folder(
    module: str, data_dir: StrPath, dataset: str
) -> pathlib.Path | None:
    """The folder of a prepared dataset, or `None` if there is none."""
    folder = pathlib.Path(data_dir) / dataset / module
    infos = sorted(folder.glob("*/dataset_info.json"))
    return infos[-1].parent if infos else None


def making(
    modules: Sequence[str], data_dir: StrPath, dataset: str
) -> tuple[str, dict[str, Any]]:
    """The remedy for missing datasets, as `UsageError` takes it."""
    options = {"modules": modules, "data_dir": data_dir, "dataset": dataset}
    return "prepare_data", options
