"""Generates whole modules, in parallel, into files of the official layout.

Nothing is kept between the rounds of generation but the files of finished
shards, so that an interrupted run resumes.
"""

import contextlib
import importlib.metadata
import json
import logging
import math
import shutil

from tpt_keras.data_generators.mathematics import archive
from tpt_keras.data_generators.mathematics.archive import EVALUATION_SPLITS
from tpt_keras.data_generators.mathematics.archive import SPLITS
from tpt_keras.data_generators.mathematics.archive import TRAIN_SPLITS
from tpt_keras.data_generators.mathematics.archive import report_path
from tpt_keras.data_generators.mathematics.shards import PROBLEMS_PER_SHARD
from tpt_keras.data_generators.mathematics.shards import generator_processes
from tpt_keras.data_generators.mathematics.shards import question_key
from tpt_keras.data_generators.mathematics.shards import read_shard
from tpt_keras.data_generators.task import TRAIN
from tpt_keras.data_generators.text_pairs import Pair
from tpt_keras.files import folder_lock
from tpt_keras.files import remove_partial
from tpt_keras.files import write_text

# A split stays short after so many times the wanted number of problems: some
# modules have only a few thousand different questions.
MAX_TIMES = 10
# Evaluation first: it decides which questions are left for training.
SPLIT_ORDER = EVALUATION_SPLITS + TRAIN_SPLITS

# The time of a training problem of the slow modules, in multiples of the median
# module's (docs/lab.md). All others are below 2.
COSTS = {
    "algebra__polynomial_roots": 3.5,
    "algebra__polynomial_roots_composed": 5.1,
    "arithmetic__simplify_surd": 7.7,
    "calculus__differentiate": 6.8,
    "calculus__differentiate_composed": 4.2,
    "polynomials__add": 4.4,
    "polynomials__compose": 3.4,
    "polynomials__evaluate_composed": 2.7,
    "polynomials__expand": 2.9,
}

logger = logging.getLogger(__name__)


def generate_modules(
    modules,
    root,
    train_examples,
    evaluation_examples,
    seed=0,
    num_workers=1,
    together=False,
    max_cost=None,
):
    """Generates modules into `root`, in the official layout.

    A finished module leaves `<module>.json` with its settings and the numbers
    of dropped problems and of errors. Few problems of many modules are
    generated faster `together`. For `max_cost` see `split_counts`.
    """
    counts = {
        module: split_counts(
            module, train_examples, evaluation_examples, max_cost
        )
        for module in modules
    }
    # One by one by default: a module's shards take as much room as its texts.
    rounds = [counts] if together else [{m: counts[m]} for m in counts]
    with generator_processes(num_workers) as generate:
        for part in rounds:
            _generate_together(part, root, seed, generate)


def _generate_together(counts, root, seed, generate):
    """Generates modules in rounds.

    A round generates the shards that are known to be missing, and the next one
    replaces what was dropped. `generate` takes arguments of `write_shard`.
    """
    with contextlib.ExitStack() as stack:
        for module in counts:
            if not report_path(root, module).exists():
                folder = shard_dir(root, module)
                stack.enter_context(folder_lock(folder, "generates problems"))
        # Another process may have finished one meanwhile.
        unfinished = [m for m in counts if not report_path(root, m).exists()]
        while unfinished:
            shards = []
            for module in list(unfinished):
                folder = shard_dir(root, module)
                assembly = Assembly(folder, counts[module])
                for split, shard in assembly.missing:
                    path = shard_path(folder, split, shard)
                    name = archive.split_module(split, module)
                    shards.append((path, name, split, shard, seed))
                if not assembly.missing:
                    _write_module(root, module, assembly, seed)
                    unfinished.remove(module)
            if shards:
                generate(shards)


def evaluation_problems(root, modules):
    """Yields the evaluation `Pair`s of generated modules, split by split."""
    for split in EVALUATION_SPLITS:
        for module in modules:
            path = archive.text_path(root, split, module)
            if path:
                for question, answer in archive.read_problems(path):
                    yield Pair(question, answer, module, split)


def problem_source(seed):
    """Returns a text of all that generated problems depend on."""
    packages = " ".join(
        f"{name} {importlib.metadata.version(name)}"
        for name in ("mathematics_dataset", "sympy")
    )
    return f"{packages} seed {seed}"


def split_counts(module, train_examples, evaluation_examples, max_cost=None):
    """The number of problems of each split that a module has, as a dict.

    `max_cost` is the most time that the training problems may take, in
    multiples of the median module's; at least 2. A slower module has fewer.
    """
    if max_cost and COSTS.get(module, 1) > max_cost:
        train_examples = max(int(train_examples * max_cost / COSTS[module]), 1)
    easier, rest = divmod(train_examples, len(TRAIN_SPLITS))
    counts = {
        split: easier + (index < rest)
        for index, split in enumerate(TRAIN_SPLITS)
    }
    counts |= dict.fromkeys(EVALUATION_SPLITS, evaluation_examples)
    return {
        split: count
        for split, count in counts.items()
        if archive.split_module(split, module)
    }


def shard_dir(root, module):
    return root / "shards" / module


def shard_path(folder, split, shard):
    return folder / f"{split}-{shard:06d}.json"


class Assembly:
    """The problems of a module, as far as its shards are there.

    A question is taken once in each evaluation split, and then once in training
    if no evaluation split has it. Splits and shards are taken in order, so that
    the result depends on the seed alone.

    The problems stay in the shards' files, and a hash of each in memory.

    Args:
        folder: Folder of the module's shards.
        counts: Dict of each split to the number of problems wanted.

    Attributes:
        missing: The splits and shards that have to be generated.
        examples: Dict of each split to the number of problems taken.
        dropped: Dict of the numbers of problems that were not taken.
        raised: The number of errors that the generator raised.
    """

    def __init__(self, folder, counts):
        self.counts = counts
        self.missing = []
        self.examples = dict.fromkeys(counts, 0)
        self.dropped = dict.fromkeys(("duplicates", "also_in_evaluation"), 0)
        self.raised = 0
        self._folder = folder
        # The indices of the taken problems in each shard.
        self._taken = {split: [] for split in counts}
        self._seen = {split: set() for split in (TRAIN, *EVALUATION_SPLITS)}
        for split in SPLIT_ORDER:
            if split in counts:
                self._merge(split)

    def problems(self, split):
        """Yields a split's problems as pairs of question and answer."""
        for shard, taken in enumerate(self._taken[split]):
            path = shard_path(self._folder, split, shard)
            problems = read_shard(path).problems
            for index in taken:
                yield problems[index]

    def _merge(self, split):
        """Takes a split's problems; notes the shards that it misses."""
        taken = self._taken[split]
        while needed := self._needed(split):
            found = read_shard(shard_path(self._folder, split, needed[0]))
            if found is None:
                self.missing += [
                    (split, shard)
                    for shard in needed
                    if shard == needed[0]  # or it was cut off
                    or not shard_path(self._folder, split, shard).exists()
                ]
                return
            self.raised += found.raised
            taken.append(
                bytes(
                    index
                    for index, (question, _) in enumerate(found.problems)
                    if self._take(split, question)
                )
            )

    def _needed(self, split):
        """The shards that complete a split if no problem is dropped."""
        first, count = len(self._taken[split]), self.counts[split]
        missing = (count - self.examples[split]) / PROBLEMS_PER_SHARD
        most = MAX_TIMES * math.ceil(count / PROBLEMS_PER_SHARD)
        return range(first, min(first + math.ceil(missing), most))

    def _take(self, split, question):
        """Takes a question if it is needed and new; returns `True` if so."""
        if self.examples[split] == self.counts[split]:
            return False
        key = question_key(question)
        is_training = split in TRAIN_SPLITS
        seen = self._seen[TRAIN if is_training else split]
        if key in seen:
            self.dropped["duplicates"] += 1
            return False
        if is_training and any(key in self._seen[s] for s in EVALUATION_SPLITS):
            self.dropped["also_in_evaluation"] += 1
            return False
        seen.add(key)
        self.examples[split] += 1
        return True


def _write_module(root, module, assembly, seed):
    """Writes a complete `Assembly`, its report last."""
    for split in SPLITS:
        if assembly.examples.get(split):
            path = archive.text_path(root, split, module)
            remove_partial(path)
            archive.write_problems(path, assembly.problems(split))
    report = {
        "source": problem_source(seed),
        "seed": seed,
        "examples": assembly.examples,
        "wanted": assembly.counts,
        "dropped": assembly.dropped,
        "raised": assembly.raised,
    }
    write_text(report_path(root, module), json.dumps(report, indent=2))
    shutil.rmtree(shard_dir(root, module), ignore_errors=True)
    logger.info(
        "%s: %s; dropped %s; raised %s",
        module,
        ", ".join(f"{n} {split}" for split, n in assembly.examples.items()),
        ", ".join(f"{n} {reason}" for reason, n in assembly.dropped.items()),
        assembly.raised,
    )
