import hashlib
import math

from tpt_keras.data_generators.mathematics_modules import EVALUATION_SPLITS
from tpt_keras.data_generators.mathematics_modules import TRAIN_SPLITS
from tpt_keras.data_generators.official_text import split_module
from tpt_keras.data_generators.problem_shards import PROBLEMS_PER_SHARD
from tpt_keras.data_generators.problem_shards import read_shard

# A split is left short when so many times the wanted problems were drawn:
# some modules know only a few thousand different questions.
MAX_DRAWS = 10


def shards_to_draw(count, taken, merged):
    """Which shards of a split are to be drawn yet.

    The one rule of generation, whoever draws. It holds before anything was
    drawn, and after every shard that was merged: duplicates and evaluation
    questions are dropped, and a further round makes up for them.

    Args:
        count: Number of problems that the split is to have.
        taken: Number of those that it has.
        merged: Number of shards that these are from.

    Returns:
        Range of numbers of shards. Where it is empty, the split is done: it
        is whole, or so many problems were drawn that no more will come.
    """
    missing = math.ceil((count - taken) / PROBLEMS_PER_SHARD)
    most = MAX_DRAWS * math.ceil(count / PROBLEMS_PER_SHARD)
    return range(merged, min(merged + missing, most))


class ModuleAssembly:
    """Puts one module's splits together from its shards.

    Evaluation splits come first and training questions are only taken if they
    are new, so that no evaluation question is among them. Splits and shards are
    taken in order, whichever was drawn first, so that the result depends on
    the seed alone.

    The problems stay in the shards' files: in memory is a hash of each.

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
        # For each merged shard, which of its problems were taken.
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
        """Yields a split's problems, as pairs of question and answer.

        Args:
            split: One of the counts' splits.
        """
        for shard, taken in enumerate(self._taken[split]):
            problems = read_shard(self._shard_path(split, shard)).problems
            for index in taken:
                yield problems[index]

    def drawing(self, split, shard):
        """What `problem_shards.write_shard` needs to draw a shard."""
        return (
            self._shard_path(split, shard),
            split_module(split, self.module),
            split,
            shard,
            self.seed,
        )

    def _shard_path(self, split, shard):
        return self._shard_dir / f"{split}-{shard:06d}.json"

    def missing_shards(self):
        """Yields what is to be drawn, as `(split, shard)`, in order."""
        for split in self._order:
            for shard in self._to_draw(split):
                if shard not in self._arrived[split]:
                    yield split, shard

    def _to_draw(self, split):
        return shards_to_draw(
            self.counts[split], self.examples[split], len(self._taken[split])
        )

    def add_shard(self, split, shard, seconds):
        """Takes note of a shard that was drawn in so many seconds."""
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
                # Cut off, by a loss of power: to be drawn again.
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
        """Whether a question is taken, or else dropped or not needed."""
        if self.examples[split] >= self.counts[split]:
            return False
        # Eight bytes a question: millions of them have to fit.
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
