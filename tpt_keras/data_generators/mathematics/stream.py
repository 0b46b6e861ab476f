"""The Mathematics Dataset as an endless stream, generated while it is read."""

import contextlib
import itertools
import os
import pathlib
import time
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np

from tpt_keras.data_generators import batches
from tpt_keras.data_generators.examples import ArrayExamples
from tpt_keras.data_generators.mathematics import archive
from tpt_keras.data_generators.mathematics import generator
from tpt_keras.data_generators.mathematics.shards import PROBLEMS_PER_SHARD
from tpt_keras.data_generators.mathematics.shards import generate_shard
from tpt_keras.data_generators.mathematics.shards import question_key
from tpt_keras.data_generators.mathematics.task import MathematicsTask
from tpt_keras.data_generators.task import TRAIN
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

    steps_per_epoch = None

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
