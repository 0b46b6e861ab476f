import numpy as np

from tpt_keras.data_generators.prepared_data import DATASETS
from tpt_keras.data_generators.prepared_data import problem_sources
from tpt_keras.data_generators.prepared_data import train_splits
from tpt_keras.data_generators.problem_slice import ProblemSlice
from tpt_keras.errors import check_names

TRAIN = "train"


def problem_samples(data_dir, modules, splits, count, dataset):
    """Some problems of modules and splits, always the same ones.

    They are those that `evaluate` takes, the first of a random order; of
    `"train"`, all training splits together, the last: the first are those that
    a training with the seed 0 sets apart for validation.

    Args:
        data_dir: Folder that `experiments.prepare_data` filled.
        modules: Names of training modules.
        splits: Names of splits, or `"train"`.
        count: Problems of every module and split, at most.
        dataset: One of `prepared_data.DATASETS`.

    Returns:
        Dict of pairs, a split and a module, to lists of pairs, a question and
        its answer. What is empty is left out.

    Raises:
        UsageError: If a name is unknown, modules were not prepared, or what
            was prepared is damaged.
    """
    check_names("dataset", [dataset], DATASETS)
    check_names("split", splits, {TRAIN, *DATASETS[dataset]})
    samples = {}
    for split in splits:
        parts = train_splits(dataset) if split == TRAIN else [split]
        sources = problem_sources(data_dir, modules, parts, dataset)
        for module, source in sources.items():
            start = len(source) - count if split == TRAIN else 0
            start = max(start, 0)
            source = ProblemSlice(source, start, start + count)
            if len(source):
                texts = source.read(np.arange(len(source)))
                samples[split, module] = [
                    tuple(text.decode("utf-8", "replace") for text in problem)
                    for problem in zip(*texts)
                ]
    return samples
