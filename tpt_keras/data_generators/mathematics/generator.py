"""Generates whole modules, in parallel, into files of the official layout.

The files of a module's shards are kept until it is finished, so that an
interrupted run resumes.
"""

import collections
import concurrent.futures
import contextlib
import fractions
import functools
import hashlib
import importlib.metadata
import itertools
import json
import logging
import math
import pathlib
import time

from tpt_keras.data_generators.mathematics import archive
from tpt_keras.data_generators.mathematics.archive import EVALUATION_SPLITS
from tpt_keras.data_generators.mathematics.archive import TRAIN_SPLITS
from tpt_keras.data_generators.mathematics.archive import report_path
from tpt_keras.data_generators.mathematics.shards import PROBLEMS_PER_SHARD
from tpt_keras.data_generators.mathematics.shards import question_key
from tpt_keras.data_generators.mathematics.shards import stored_shard
from tpt_keras.data_generators.task import TRAIN
from tpt_keras.data_generators.text_pairs import json_rows
from tpt_keras.errors import BusyFolderError
from tpt_keras.errors import UsageError
from tpt_keras.files import folder_lock
from tpt_keras.files import reading
from tpt_keras.files import remove_partial
from tpt_keras.files import write_text
from tpt_keras.processes import raise_if_interrupted
from tpt_keras.processes import spawned_pool

# A split stays short after so many times the wanted number of problems: some
# modules have only a few thousand different questions.
MAX_TIMES = 10
# Modules that are generated at a time, at most: each has a hash of every
# question in memory, and a file of every shard.
_MODULES_AT_A_TIME = 8
# Shards of a module that are generated ahead, for each process.
_AHEAD = 4
_SECONDS_PER_LINE = 10
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
    excluded=frozenset(),
    **counted,
):
    """Generates modules into `root`, in the official layout.

    A finished module leaves `<module>.json` with its settings and the numbers
    of dropped problems and of errors. A few modules are generated at a time.
    `excluded` has the `question_key`s of questions that training may not have.
    For `max_cost` and `shares` see `split_counts`.
    """
    reports = {}
    for module in modules:
        if not report_path(root, module).exists():
            wanted = split_counts(
                module, train_examples, evaluation_examples, **counted
            )
            reports[module] = {
                "source": problem_source(seed),
                "seed": seed,
                "examples": dict.fromkeys(wanted, 0),
                "wanted": wanted,
                "dropped": {"duplicates": 0, "also_in_evaluation": 0},
                "raised": 0,
            }
            if excluded:
                reports[module]["excluded"] = keys_hash(excluded)
    if not reports:
        return
    ahead = _AHEAD * num_workers
    at_a_time = min(num_workers, _MODULES_AT_A_TIME)
    with (
        # Its threads end when the pool refuses or cancels their shards.
        concurrent.futures.ThreadPoolExecutor(at_a_time) as threads,
        spawned_pool(num_workers) as pool,
    ):
        submit = functools.partial(threads.submit, _write_module, root)
        _write_all(functools.partial(submit, excluded, pool, ahead), reports)


def _write_all(start, reports):
    """Starts modules, waits for all, logs the progress, and raises errors.

    A module that another process is at is started again: that one may die.
    A shard of a slow module takes a minute. Then a line names the module, and
    the next one comes later.
    """
    at_work, busy, named = {}, [*reports], set()
    line, seconds = "", _SECONDS_PER_LINE
    while at_work or busy:
        raise_if_interrupted()
        at_work |= {start(module, reports[module]): module for module in busy}
        finished, _ = concurrent.futures.wait(
            at_work, seconds, concurrent.futures.FIRST_EXCEPTION
        )
        is_done = {at_work.pop(each): each.result() for each in finished}
        busy = sorted(module for module in is_done if not is_done[module])
        if new := [module for module in busy if module not in named]:
            logger.info("Other processes generate %s.", ", ".join(new))
            named.update(new)
        if at_work:
            taken, wanted = (
                sum(sum(each[name].values()) for each in reports.values())
                for name in ("examples", "wanted")
            )
            line, before = f"{taken:,} of {wanted:,} problems.", line
            names = [m for each, m in at_work.items() if each.running()]
            moved, slow = line != before, ", ".join(names)
            seconds = _SECONDS_PER_LINE if moved else 2 * seconds
            logger.info(line if moved else f"Still {line} At work: {slow}.")
        elif busy:
            time.sleep(1)


def _write_module(root, excluded, pool, ahead, module, report):
    """Writes the files of a module, and its report when they are complete.

    Returns whether the module is finished: `False` if another process is at it.
    """
    folder = root / "shards" / module

    def start(split, shard):
        path = folder / f"{split}-{shard:06d}.json"
        name = archive.split_module(split, module)
        return pool.submit(
            stored_shard, path, name, split, shard, report["seed"]
        )

    with (
        contextlib.suppress(BusyFolderError),
        folder_lock(folder, "generates problems"),
    ):
        # NFS may miss a new file for a minute, but not in a listing.
        if report_path(root, module) in root.iterdir():
            report |= json.loads(report_path(root, module).read_bytes())
            return True  # another process finished it meanwhile
        seen = collections.defaultdict(set, excluded=excluded)
        for split in SPLIT_ORDER:
            if report["wanted"].get(split):
                path = archive.text_path(root, split, module)
                remove_partial(path)
                problems = new_problems(split, report, seen, start, ahead)
                archive.write_problems(path, problems)
        write_text(report_path(root, module), json.dumps(report, indent=2))
        # Not the lock, which others may try just now.
        for path in folder.glob("*.json"):
            path.unlink(missing_ok=True)
        logger.info(
            "%s: %s; dropped %s; raised %s",
            module,
            ", ".join(f"{n} {name}" for name, n in report["examples"].items()),
            ", ".join(f"{n} {name}" for name, n in report["dropped"].items()),
            report["raised"],
        )
        return True
    return False


def new_problems(split, report, seen, start, ahead):
    """Yields the problems of a split, and counts them in the module's report.

    A question is taken once in each evaluation split, and then once in training
    if no evaluation split has it. The splits have to be taken in `SPLIT_ORDER`.
    Shards are taken in order, so that the result depends on the seed alone.

    Args:
        split: One of `SPLITS`.
        report: Dict of the numbers of `examples` that are there, `wanted`, and
            `dropped`, and of errors (`raised`).
        seen: Dict of sets, which is empty before the first split, but for the
            hashes `excluded` from training. It gets that of each question.
        start: Function of a split and a number that starts the generation of a
            shard, and returns the future of the `Shard`.
        ahead: Number of shards that are generated at a time.
    """
    wanted, examples = report["wanted"][split], report["examples"]
    own, others = seen[split], []
    if split in TRAIN_SPLITS:
        others = [seen[each] for each in (*EVALUATION_SPLITS, "excluded")]
        own = seen[TRAIN]
    most = MAX_TIMES * math.ceil(wanted / PROBLEMS_PER_SHARD)
    futures = (start(split, shard) for shard in range(most))
    started = collections.deque()
    while missing := wanted - examples[split]:
        # No more than complete the split if no problem is dropped.
        needed = min(math.ceil(missing / PROBLEMS_PER_SHARD), ahead)
        started += itertools.islice(futures, needed - len(started))
        if not started:
            return
        shard = started.popleft().result()
        report["raised"] += shard.raised
        for question, answer in shard.problems:
            if examples[split] == wanted:
                return
            key = question_key(question)
            if key in own:
                report["dropped"]["duplicates"] += 1
            elif any(key in other for other in others):
                report["dropped"]["also_in_evaluation"] += 1
            else:
                own.add(key)
                examples[split] += 1
                yield question, answer


def problem_source(seed):
    """Returns a text of all that generated problems depend on."""
    packages = " ".join(
        f"{name} {importlib.metadata.version(name)}"
        for name in ("mathematics_dataset", "sympy")
    )
    return f"{packages} seed {seed}"


def parse_difficulties(text):
    """Parses the shares of difficulties, `"1:1:2"`, to whole numbers."""
    shares = []
    with contextlib.suppress(ValueError, ZeroDivisionError):
        shares = [fractions.Fraction(share) for share in text.split(":")]
    if len(shares) != len(TRAIN_SPLITS) or min(shares) < 0 or not any(shares):
        raise UsageError(
            "`difficulties` must be three finite shares of at least 0, not all "
            f"0, such as 1:1:2. Received: {text!r}.",
            field="difficulties",
        )
    factor = math.lcm(*(share.denominator for share in shares))
    return tuple(int(share * factor) for share in shares)


def read_excluded(path):
    """Reads JSON lines with a question each, as a set of `question_key`s."""
    if not path:
        return frozenset()
    with reading(path, "`exclude` takes JSON lines of questions.", "exclude"):
        rows = json_rows(pathlib.Path(path).read_text("utf-8-sig"))
        return frozenset(question_key(row["question"]) for _, row in rows)


def keys_hash(keys):
    """A hash of a set of `question_key`s, as a text."""
    return hashlib.sha256(b"".join(sorted(keys))).hexdigest()[:16]


def split_counts(
    module, train_examples, evaluation_examples, max_cost=None, shares=(1, 1, 1)
):
    """The number of problems of each split that a module has, as a dict.

    `max_cost` is the most time that the training problems may take, in
    multiples of the median module's; at least 2. A slower module has fewer.
    `shares` are those of the difficulties, in whole numbers.
    """
    if max_cost and COSTS.get(module, 1) > max_cost:
        fewer = int(train_examples * max_cost / COSTS[module])
        train_examples = min(train_examples, max(fewer, len(TRAIN_SPLITS)))
    ends = itertools.accumulate(shares, initial=0)
    ends = [-(-train_examples * end // sum(shares)) for end in ends]
    counts = [end - start for start, end in itertools.pairwise(ends)]
    counts = dict(zip(TRAIN_SPLITS, counts))
    counts |= dict.fromkeys(EVALUATION_SPLITS, evaluation_examples)
    return {
        split: count
        for split, count in counts.items()
        if archive.split_module(split, module)
    }
