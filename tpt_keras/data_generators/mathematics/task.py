"""The Mathematics Dataset as tasks: prepared, or an endless stream."""

import contextlib
import itertools
import os
import pathlib
import textwrap
import time
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpt_keras.data_generators import batches
from tpt_keras.data_generators.examples import ArrayExamples
from tpt_keras.data_generators.examples import Examples
from tpt_keras.data_generators.mathematics import archive
from tpt_keras.data_generators.mathematics import generator
from tpt_keras.data_generators.mathematics.shards import PROBLEMS_PER_SHARD
from tpt_keras.data_generators.mathematics.shards import generate_shard
from tpt_keras.data_generators.mathematics.shards import question_key
from tpt_keras.data_generators.task import TRAIN
from tpt_keras.data_generators.task import Task
from tpt_keras.data_generators.task import matching_groups
from tpt_keras.data_generators.text_pairs import DELIMITERS
from tpt_keras.data_generators.token_cache import NAME
from tpt_keras.data_generators.token_cache import open_cache
from tpt_keras.data_generators.token_cache import write_cache
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.errors import check_positive_integer
from tpt_keras.files import folder_lock
from tpt_keras.processes import available_cores
from tpt_keras.processes import named_when_killed
from tpt_keras.processes import spawned_pool
from tpt_keras.tokenizers.character_tokenizer import MATHEMATICS_VOCABULARY
from tpt_keras.typing import StrPath

# Windows of batches that are generated ahead, which bounds the memory.
_WINDOWS_AHEAD = 2
# Of the generator processes: the training's own has its core when it needs it.
_NICENESS = 5


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
        # TensorFlow Datasets is not needed where the cache is already there.
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


class MathematicsStreamTask(MathematicsTask):
    """DeepMind's Mathematics Dataset without end; its groups are modules.

    The training's problems are generated when they are needed; see
    `StreamBatches`. Those of evaluation and validation are generated once, into
    `data_dir`, with equal difficulties, and the training never has them.

    Args:
        data_dir: Folder for the held-out problems.
        groups: Names of modules, or patterns.
        evaluation_problems: Problems of each module and split for evaluation.
        validation_problems: Problems of the training splits, of all modules
            together, that are held out for validation and for reports.
        problems_seed: Seed of the held-out problems.
        difficulties: Shares of easy, medium and hard problems of the training.
        exclude: JSON lines of questions that the training never has either.

    Example:

    ```python
    task = MathematicsStreamTask("data", ["numbers__gcd"])
    examples = task.examples("interpolate")["numbers__gcd"]
    print(examples.texts([0, 1]))
    ```
    """

    name = "mathematics_stream"

    def __init__(
        self,
        data_dir: StrPath,
        groups: Sequence[str],
        evaluation_problems: int = 200,
        validation_problems: int = 8192,
        problems_seed: int = 0,
        difficulties: str = "1:1:1",
        exclude: str = "",
    ) -> None:
        check_positive_integer("evaluation_problems", evaluation_problems)
        check_positive_integer("validation_problems", validation_problems)
        self._difficulties = generator.parse_difficulties(difficulties)
        self._excluded = generator.read_excluded(exclude)
        self.groups = self.select_groups(data_dir, groups)
        self._examples = _held_out(
            pathlib.Path(data_dir) / self.name,
            self.groups,
            # At least one of each difficulty.
            max(3, -(-validation_problems // len(self.groups))),
            evaluation_problems,
            problems_seed,
        )
        if self._excluded:
            self.fingerprints["excluded"] = generator.keys_hash(self._excluded)

    def training_batches(self, batches, weights, config):
        held_out = frozenset(
            question_key(question)
            for split in (TRAIN, *self.splits)
            for examples in self.examples(split).values()
            for question, _ in examples.texts(np.arange(len(examples)))
        )
        return StreamBatches(
            batches,
            self.groups,
            np.outer(weights, self._difficulties),
            held_out | self._excluded,
            config.data.generator_processes,
        )


def _held_out(folder, modules, *counts_and_seed):
    """Reads the held-out problems of modules, and generates them at first."""
    root = folder / "seed{2}-train{0}-evaluation{1}".format(*counts_and_seed)
    if not all(archive.report_path(root, m).exists() for m in modules):
        # Several processes of one training may start at the same time.
        with (
            folder_lock(root, "generates the held-out problems", wait=True),
            named_when_killed(),
        ):
            numbers = *counts_and_seed, available_cores()
            generator.generate_modules(modules, root, *numbers)
    examples = {}
    for module in modules:
        splits, _ = archive.read_module(root, module)
        joined = archive.joined_splits(splits, "mathematics_dataset")
        examples[module] = {
            split: ArrayExamples.from_texts(problems, MATHEMATICS_VOCABULARY)
            for split, problems in joined.items()
        }
    return examples


class StreamBatches(batches.ProblemBatches):
    """Token batches of problems that processes generate, without end.

    The batch of a step depends on the seed, the batch size, the modules, their
    weights and the problems that are held out. It does not depend on the number
    of processes or on the step that a training starts at.

    A window of `WINDOW_BATCHES` batches is generated in shards of a module and
    a difficulty each. The next windows are generated while one is read. The
    processes run within `opened`.

    Args:
        sample: A `ProblemBatches` of problems that are like those of the
            stream. Their lengths choose the buckets.
        modules: Names of modules.
        weights: Shares in the stream of each module's easy, medium and hard
            problems: a row of a matrix.
        excluded: Set of the `question_key`s of problems that are left out.
        num_processes: Number of processes. `0`: one a core, less one.
    """

    # The end is never reached.
    steps_per_epoch = 2**40

    def __init__(self, sample, modules, weights, excluded, num_processes=0):
        super().__init__(
            sample.source,
            sample.tokenizer,
            sample.batch_size,
            sample.seed,
            sample.limits,
        )
        self.seconds_waited = 0.0
        kinds = itertools.product(modules, archive.TRAIN_SPLITS)
        kinds = dict(zip(kinds, np.ravel(weights).astype(float)))
        self._kinds = [kind for kind, share in kinds.items() if share]
        shares = np.array([kinds[kind] for kind in self._kinds])
        # Where a kind ends and the next one starts, all of them from 0 to 1.
        self._ends = np.cumsum(shares / shares.sum())[:-1]
        self._excluded = excluded
        self._num_processes = num_processes or max(available_cores() - 1, 1)
        self._pool = None
        # The futures of the shards of each window.
        self._futures = {}

    def __len__(self):
        return self.steps_per_epoch * self.batch_size

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        pool = spawned_pool(self._num_processes, _start, self._excluded)
        try:
            with pool as self._pool, super().opened():
                yield
        finally:
            self._pool = None
            self._futures.clear()

    def window_shards(self, window):
        """Returns the arguments of `generate_shard` for a window's shards."""
        count = batches.WINDOW_BATCHES * self.batch_size
        # Systematic sampling: a kind's number is its share, rounded up or down
        # at random.
        offset = np.random.default_rng((self.seed, window)).random()
        kinds = np.searchsorted(
            self._ends, (np.arange(count) + offset) / count, "right"
        )
        first_shard = window * -(-count // PROBLEMS_PER_SHARD)
        return [
            (
                *self._kinds[kind],
                first_shard + start // PROBLEMS_PER_SHARD,
                # Other problems than those of a dataset of the same seed.
                f"stream{self.seed}",
                min(PROBLEMS_PER_SHARD, number - start),
            )
            for kind, number in enumerate(np.bincount(kinds).tolist())
            for start in range(0, number, PROBLEMS_PER_SHARD)
        ]

    def _examples_of_window(self, epoch, first):
        start = time.perf_counter()
        with named_when_killed("generator_processes"):
            problems = self._problems(first // batches.WINDOW_BATCHES)
        self.seconds_waited += time.perf_counter() - start
        examples = ArrayExamples.from_texts(problems, MATHEMATICS_VOCABULARY)
        return examples, np.arange(len(examples))

    def _problems(self, window):
        """Generates a window's problems, and starts with the next windows'."""
        pool, futures = self._pool, self._futures
        if pool is None:
            raise RuntimeError("A stream is read within `opened`.")
        wanted = range(window, window + 1 + _WINDOWS_AHEAD)
        for number in wanted:
            if number not in futures:
                futures[number] = [
                    pool.submit(_generate, *described)
                    for described in self.window_shards(number)
                ]
        problems = []
        for future in futures[window]:
            problems += future.result().problems
        for number in futures.keys() - wanted:
            for future in futures.pop(number):
                future.cancel()
        return problems


_excluded: frozenset = frozenset()


def _start(excluded):
    global _excluded
    _excluded = excluded
    os.nice(_NICENESS)


def _generate(*described):
    return generate_shard(*described, excluded=_excluded)
