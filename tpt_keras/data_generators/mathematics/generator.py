"""Generates whole modules, in parallel, into files of the official layout."""

import contextlib
import hashlib
import itertools
import json
import logging
import math
import shutil
import time

from tpt_keras.data_generators.mathematics import archive
from tpt_keras.data_generators.mathematics.modules import EVALUATION_SPLITS
from tpt_keras.data_generators.mathematics.modules import SPLITS
from tpt_keras.data_generators.mathematics.modules import TRAIN_SPLITS
from tpt_keras.data_generators.mathematics.shards import PROBLEMS_PER_SHARD
from tpt_keras.data_generators.mathematics.shards import drawing_processes
from tpt_keras.data_generators.mathematics.shards import read_shard
from tpt_keras.files import folder_lock
from tpt_keras.files import remove_partial
from tpt_keras.files import whole_file

# A split stays short after so many times the wanted number of draws: some
# modules have only a few thousand different questions.
MAX_DRAWS = 10
# Each takes about 100 bytes. Four modules of the paper's two million.
_PROBLEMS_IN_MEMORY = 10_000_000
_SECONDS_PER_LINE = 10

logger = logging.getLogger(__name__)


def generate_modules(
    modules,
    root,
    train_examples,
    evaluation_examples,
    seed=0,
    num_workers=1,
    drawing=None,
):
    """Generates modules into `root`, in the official layout.

    In every round, the shards that the modules are known to need are requested
    (see `shards_to_draw`), and those that were drawn are merged. A module that
    needs no more shards is written, and another one takes its place.

    Finished shards are kept in `root` until their module is complete, so that
    an interrupted run resumes. A finished module leaves `<module>.json` with
    its settings and the numbers of dropped problems and of errors.

    Args:
        modules: Names of training modules.
        root: Folder to write to.
        train_examples: Training problems of each module.
        evaluation_examples: Problems of each module's evaluation splits.
        seed: Seed. The result depends on nothing else.
        num_workers: Number of shards that are drawn at a time.
        drawing: Context manager of a function that draws shards. The function
            takes a dict of their names to arguments of `write_shard`, and
            returns, as soon as some shards are finished, a dict of their names
            to the seconds that they took. Defaults to processes of this
            machine.

    Raises:
        UsageError: If another process generates one of the modules, or the
            generator of one raises nothing but errors.
    """
    # A slow module takes one of these places, not all. Two at least: the
    # second gives work while the first ends.
    problems = train_examples + len(EVALUATION_SPLITS) * evaluation_examples
    places = min(num_workers + 2, max(2, _PROBLEMS_IN_MEMORY // problems))
    with contextlib.ExitStack() as stack:
        unfinished = stack.enter_context(lock_unfinished(modules, root))
        waiting = (
            ModuleAssembly(
                module,
                split_counts(module, train_examples, evaluation_examples),
                _shard_dir(root, module),
                seed,
            )
            for module in unfinished
        )
        draw = stack.enter_context(drawing or drawing_processes(num_workers))
        active, running, logged = [], set(), time.monotonic()
        while True:
            active += itertools.islice(waiting, places - len(active))
            if not active:
                break
            _draw_some(draw, active, running, 2 * num_workers)
            logged = _log_progress(active, logged)
            for assembly in [a for a in active if a.is_complete]:
                active.remove(assembly)
                write_module(root, assembly)


def split_counts(module, train_examples, evaluation_examples):
    """The number of problems of each split of a module.

    Args:
        module: Name of a training module.
        train_examples: Number of training problems of all difficulties.
        evaluation_examples: Number of problems of each evaluation split.

    Returns:
        Dict of split to number, without the splits that the module lacks.
    """
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


@contextlib.contextmanager
def lock_unfinished(modules, root):
    """Locks the modules that have no report yet and yields their names."""
    with contextlib.ExitStack() as stack:
        for module in modules:
            if not report_path(root, module).exists():
                stack.enter_context(
                    folder_lock(_shard_dir(root, module), "generates problems")
                )
        # Another process may have finished one meanwhile.
        yield [m for m in modules if not report_path(root, m).exists()]


def _draw_some(draw, active, running, most_shards):
    """Requests shards, and merges those that are finished."""
    room = most_shards - len(running)
    drawings = dict(itertools.islice(_missing(active, running), room))
    running.update(drawings)
    if running:
        for name, seconds in draw(drawings).items():
            running.remove(name)
            assembly, split, shard = name
            assembly.add_shard(split, shard, seconds)


def _missing(active, running):
    """Yields the names of missing shards with their arguments."""
    # Modules that had the least time come first.
    for assembly in sorted(active, key=lambda a: a.seconds):
        for task in assembly.missing_shards():
            if (assembly, *task) not in running:
                yield (assembly, *task), assembly.drawing(*task)


def _shard_dir(root, module):
    return root / "shards" / module


def report_path(root, module):
    """The report of a finished module."""
    return root / f"{module}.json"


def write_module(root, assembly):
    """Writes a complete `ModuleAssembly`, its report last."""
    module = assembly.module
    for split in SPLITS:
        if assembly.examples.get(split):
            path = archive.text_path(root, split, module)
            remove_partial(path)
            archive.write_problems(path, assembly.problems(split))
    report = {
        "seed": assembly.seed,
        "examples": assembly.examples,
        "wanted": assembly.counts,
        "dropped": assembly.dropped,
        "raised": assembly.raised,
    }
    with whole_file(report_path(root, module)) as partial:
        partial.write_text(json.dumps(report, indent=2))
    shutil.rmtree(_shard_dir(root, module), ignore_errors=True)
    logger.info(
        "%s: %s; dropped %s; raised %s",
        module,
        ", ".join(f"{n} {split}" for split, n in assembly.examples.items()),
        ", ".join(f"{n} {reason}" for reason, n in assembly.dropped.items()),
        assembly.raised,
    )


def _log_progress(active, last):
    """Logs the progress at intervals; returns the time of the last line."""
    if time.monotonic() < last + _SECONDS_PER_LINE:
        return last
    logger.info(
        "%s of %s problems of %s.",
        f"{sum(sum(a.examples.values()) for a in active):,}",
        f"{sum(sum(a.counts.values()) for a in active):,}",
        ", ".join(a.module for a in active),
    )
    return time.monotonic()


def shards_to_draw(count, taken, merged):
    """The shards of a split that have to be drawn yet.

    It is the one rule of generation. It holds before anything was drawn and
    after every merged shard: a further round replaces the problems that were
    dropped as duplicates or evaluation questions.

    Args:
        count: Number of problems that the split is to have.
        taken: Number of problems that it has.
        merged: Number of shards that these come from.

    Returns:
        Range of the numbers of shards. It is empty when the split is done:
        either complete, or so many problems were drawn that no more will come.
    """
    missing = math.ceil((count - taken) / PROBLEMS_PER_SHARD)
    most = MAX_DRAWS * math.ceil(count / PROBLEMS_PER_SHARD)
    return range(merged, min(merged + missing, most))


class ModuleAssembly:
    """Assembles one module's splits from its shards.

    Evaluation splits come first, and a training question is taken only if it
    is new, so that no evaluation question is among them. Splits and shards are
    taken in order, whichever was drawn first, so that the result depends on
    the seed alone.

    The problems stay in the shards' files, and a hash of each in memory.

    Args:
        module: Name of a training module.
        counts: Dict of split to the number of unique problems wanted.
        shard_dir: Folder of the module's shards.
        seed: Seed of the dataset.
    """

    def __init__(self, module, counts, shard_dir, seed):
        self.module = module
        self.seed = seed
        self.examples = dict.fromkeys(counts, 0)  # taken, so far
        self.dropped = dict.fromkeys(("duplicates", "also_in_evaluation"), 0)
        self.raised = 0
        self.seconds = 0.0  # of drawing, so far
        self.counts = counts
        self._shard_dir = shard_dir
        self._order = [
            split
            for split in EVALUATION_SPLITS + TRAIN_SPLITS
            if counts.get(split)
        ]
        # The places of the taken problems in each merged shard.
        self._taken = {split: [] for split in counts}
        self._arrived = {
            split: {
                int(path.stem.rpartition("-")[2])
                for path in shard_dir.glob(f"{split}-*.json")
            }
            for split in self._order
        }
        self._seen = {group: set() for group in ("train", *EVALUATION_SPLITS)}
        self._merge()

    @property
    def is_complete(self):
        return not self._order

    def problems(self, split):
        """Yields a split's problems as pairs of question and answer."""
        for shard, taken in enumerate(self._taken[split]):
            problems = read_shard(self._shard_path(split, shard)).problems
            for index in taken:
                yield problems[index]

    def drawing(self, split, shard):
        """The arguments of `write_shard` that draw a shard."""
        return (
            self._shard_path(split, shard),
            archive.split_module(split, self.module),
            split,
            shard,
            self.seed,
        )

    def _shard_path(self, split, shard):
        return self._shard_dir / f"{split}-{shard:06d}.json"

    def missing_shards(self):
        """Yields missing shards as `(split, shard)`, in order."""
        for split in self._order:
            for shard in self._to_draw(split):
                if shard not in self._arrived[split]:
                    yield split, shard

    def _to_draw(self, split):
        return shards_to_draw(
            self.counts[split], self.examples[split], len(self._taken[split])
        )

    def add_shard(self, split, shard, seconds):
        """Records that a shard was drawn in so many seconds."""
        self.seconds += seconds
        self._arrived[split].add(shard)
        self._merge()

    def _merge(self):
        while self._order:
            split = self._order[0]
            if not self._to_draw(split):
                self._order.pop(0)
                continue
            shard = len(self._taken[split])
            if shard not in self._arrived[split]:
                return
            try:
                drawn = read_shard(self._shard_path(split, shard))
            except ValueError:
                # Cut off by a loss of power: it is drawn again.
                self._arrived[split].remove(shard)
                return
            self.raised += drawn.raised
            self._taken[split].append(
                bytes(
                    index
                    for index, (question, _) in enumerate(drawn.problems)
                    if self._take(split, question)
                )
            )

    def _take(self, split, question):
        """Returns `True` if a question is needed and new."""
        if self.examples[split] >= self.counts[split]:
            return False
        # Eight bytes a question, because millions of them have to fit.
        key = hashlib.blake2b(question.encode(), digest_size=8).digest()
        is_training = split in TRAIN_SPLITS
        seen = self._seen["train" if is_training else split]
        if key in seen:
            self.dropped["duplicates"] += 1
            return False
        if is_training and any(
            key in self._seen[evaluation] for evaluation in EVALUATION_SPLITS
        ):
            self.dropped["also_in_evaluation"] += 1
            return False
        seen.add(key)
        self.examples[split] += 1
        return True
