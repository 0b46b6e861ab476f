"""Generates whole modules, in parallel, into files of the official layout."""

import contextlib
import itertools
import json
import shutil

import tqdm

from tpt_keras.data_generators import official_text
from tpt_keras.data_generators.drawing_processes import drawing_processes
from tpt_keras.data_generators.generation_progress import GenerationProgress
from tpt_keras.data_generators.mathematics_modules import EVALUATION_SPLITS
from tpt_keras.data_generators.mathematics_modules import SPLITS
from tpt_keras.data_generators.mathematics_modules import TRAIN_SPLITS
from tpt_keras.data_generators.module_assembly import ModuleAssembly
from tpt_keras.files import folder_lock
from tpt_keras.files import remove_partial
from tpt_keras.files import whole_file

# Each takes about 100 bytes. Four modules of the paper's two million.
_PROBLEMS_IN_MEMORY = 10_000_000


def split_counts(module, train_examples, evaluation_examples):
    """How many problems of each split a module is to have.

    Args:
        module: Name of a training module.
        train_examples: Number of training problems, over all difficulties.
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
        if official_text.split_module(split, module)
    }


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

    In every round shards are asked for that modules are known to need, see
    `shards_to_draw`, and those that were drawn are merged. A module that needs
    no more is written, and another one takes its place.

    Finished shards are kept in `root` until their module is whole, so that an
    interrupted run goes on where it was. A finished module leaves
    `<module>.json`, with what was asked for, what was dropped and how often the
    generator raised an error.

    Args:
        modules: Names of training modules.
        root: Folder to write to.
        train_examples: Training problems of each module.
        evaluation_examples: Problems of each module's evaluation splits.
        seed: Seed; the result depends on nothing else.
        num_workers: How many draw at a time.
        drawing: Context manager of a function that draws shards, given as a
            dict of their names to arguments of `write_shard`. It returns when
            it has some, of these or of those it was given before: a dict of
            their names to the seconds that they took. Defaults to processes
            of this machine.

    Raises:
        UsageError: If another process generates one of the modules, or the
            generator of one does nothing but raise errors.
    """
    # A slow module takes one of these places, not all.
    places = min(
        num_workers + 2, modules_at_once(train_examples, evaluation_examples)
    )
    with contextlib.ExitStack() as stack:
        unfinished = stack.enter_context(lock_unfinished(modules, root))
        progress = stack.enter_context(GenerationProgress(len(unfinished)))
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
        active, running = [], set()
        while True:
            active += itertools.islice(waiting, places - len(active))
            if not active:
                break
            _draw_some(draw, active, running, 2 * num_workers)
            progress.show(active)
            _write_complete(root, active)


def _draw_some(draw, active, running, most_shards):
    """Asks for shards, and merges those that are drawn."""
    room = most_shards - len(running)
    drawings = dict(itertools.islice(_missing(active, running), room))
    running.update(drawings)
    if running:
        for name, seconds in draw(drawings).items():
            running.remove(name)
            assembly, split, shard = name
            assembly.add_shard(split, shard, seconds)


def _missing(active, running):
    """Yields the shards to draw: their names, and what draws them."""
    # Those modules first that had least of the time.
    for assembly in sorted(active, key=lambda a: a.seconds):
        for task in assembly.missing_shards():
            if (assembly, *task) not in running:
                yield (assembly, *task), assembly.drawing(*task)


def _write_complete(root, active):
    for assembly in [a for a in active if a.is_complete]:
        active.remove(assembly)
        write_module(root, assembly)


@contextlib.contextmanager
def lock_unfinished(modules, root):
    """Keeps other processes from generating the same modules.

    Args:
        modules: See `generate_modules`.
        root: See `generate_modules`.

    Yields:
        Names of those modules that have no report yet.

    Raises:
        UsageError: If another process generates one of them.
    """
    with contextlib.ExitStack() as stack:
        for module in modules:
            if not report_path(root, module).exists():
                stack.enter_context(
                    folder_lock(_shard_dir(root, module), "generates problems")
                )
        # What has one now was finished by another process meanwhile.
        yield [m for m in modules if not report_path(root, m).exists()]


def modules_at_once(train_examples, evaluation_examples):
    """How many modules' problems fit into memory.

    Args:
        train_examples: See `generate_modules`.
        evaluation_examples: See `generate_modules`.

    Returns:
        A number, at least two: while one ends, the other gives work.
    """
    problems = train_examples + len(EVALUATION_SPLITS) * evaluation_examples
    return max(2, _PROBLEMS_IN_MEMORY // problems)


def _shard_dir(root, module):
    return root / "shards" / module


def report_path(root, module):
    """The file that says that a module is whole, and how it was made."""
    return root / f"{module}.json"


def write_module(root, assembly):
    """Writes a whole module; its report last.

    Args:
        root: Folder to write to.
        assembly: A `ModuleAssembly` that is complete.
    """
    module = assembly.module
    for split in SPLITS:
        if assembly.examples.get(split):
            path = official_text.text_path(root, split, module)
            remove_partial(path)
            official_text.write_problems(path, assembly.problems(split))
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
    tqdm.tqdm.write(
        f"{module}: "
        + ", ".join(f"{n} {split}" for split, n in report["examples"].items())
        + "; dropped "
        + ", ".join(f"{n} {why}" for why, n in report["dropped"].items())
        + f"; raised {assembly.raised}"
    )
