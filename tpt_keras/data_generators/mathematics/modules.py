"""The modules and splits of the Mathematics Dataset and of its versions."""

import itertools

from tpt_keras.data_generators.task import TRAIN

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

# Of the prepared datasets.
DATASET_VERSION = "1.0.0"


def joined_splits(splits, dataset):
    """The task's splits, of those of a dataset: dicts of iterables."""
    return {
        split: itertools.chain.from_iterable(
            splits[name] for name in names if name in splits
        )
        for split, names in DATASETS[dataset].items()
    }
