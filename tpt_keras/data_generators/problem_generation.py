"""Generates whole modules, in parallel, into files of the official layout."""

import concurrent.futures
import contextlib
import itertools
import json
import multiprocessing
import os
import shutil
import threading
import time

import tqdm

from tpt_keras.data_generators import official_text
from tpt_keras.data_generators.deaf_children import deaf_children
from tpt_keras.data_generators.mathematics_modules import EVALUATION_SPLITS
from tpt_keras.data_generators.mathematics_modules import SPLITS
from tpt_keras.data_generators.mathematics_modules import TRAIN_SPLITS
from tpt_keras.data_generators.module_assembly import ModuleAssembly
from tpt_keras.data_generators.problem_shards import write_shard
from tpt_keras.files import folder_lock
from tpt_keras.files import remove_partial
from tpt_keras.files import whole_file

# Between lines that say how far it is, where no bar does.
_SECONDS_PER_LINE = 60
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
):
    """Generates modules into `root`, in the official layout.

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
        num_workers: Number of processes.

    Raises:
        UsageError: If another process generates one of the modules, or the
            generator of one does nothing but raise errors.
    """
    next_line = time.monotonic() + _SECONDS_PER_LINE
    with contextlib.ExitStack() as stack:
        unfinished = stack.enter_context(lock_unfinished(modules, root))
        waiting = assemblies(
            unfinished, root, train_examples, evaluation_examples, seed
        )
        # A slow module takes one of these places, not all.
        places = min(
            num_workers + 2,
            modules_at_once(train_examples, evaluation_examples),
        )
        all_modules = stack.enter_context(
            tqdm.tqdm(
                total=len(unfinished),
                desc="modules",
                unit=" modules",
                leave=False,
            )
        )
        pool = stack.enter_context(
            concurrent.futures.ProcessPoolExecutor(
                num_workers,
                # Spawned, for TensorFlow does not survive a fork.
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_end_with_parent,
            )
        )
        # After an error there is no need to draw what was asked for.
        stack.callback(pool.shutdown, cancel_futures=True)
        active = {}  # assemblies and their bars
        running = {}
        while True:
            new = itertools.islice(waiting, places - len(active))
            active |= {a: stack.enter_context(_progress_bar(a)) for a in new}
            if not active:
                break
            _fill(pool, running, active, 2 * num_workers)
            all_modules.update(_finish(root, active))
            if running:
                _collect(running, active)
                if all_modules.disable and time.monotonic() >= next_line:
                    next_line = time.monotonic() + _SECONDS_PER_LINE
                    _say_how_far(active)


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


def assemblies(modules, root, train_examples, evaluation_examples, seed):
    """Starts to put modules together, each when it is asked for.

    Args:
        modules: See `generate_modules`.
        root: See `generate_modules`.
        train_examples: See `generate_modules`.
        evaluation_examples: See `generate_modules`.
        seed: See `generate_modules`.

    Yields:
        A `ModuleAssembly` of each module.
    """
    for module in modules:
        yield ModuleAssembly(
            module,
            split_counts(module, train_examples, evaluation_examples),
            _shard_dir(root, module),
            seed,
        )


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


def _end_with_parent():
    """Ends this process with the one that started it, should that be killed.

    It would otherwise wait for work for ever.
    """

    def watch():
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _progress_bar(assembly):
    return tqdm.tqdm(
        desc=assembly.module,
        total=sum(assembly.counts.values()),
        unit=" problems",
        leave=False,
    )


def _say_how_far(active):
    """What bars would show, for output that is no terminal."""
    drawn = sum(sum(assembly.examples.values()) for assembly in active)
    wanted = sum(sum(assembly.counts.values()) for assembly in active)
    modules = ", ".join(assembly.module for assembly in active)
    print(f"{drawn:,} of {wanted:,} problems of {modules}.")


def _fill(pool, running, active, most):
    """Gives the pool work, of the modules that had least of its time first."""
    for assembly in sorted(active, key=lambda a: a.seconds):
        while len(running) < most:
            task = assembly.next_shard()
            if task is None:
                break
            with deaf_children():
                future = pool.submit(_draw_shard, *assembly.drawing(*task))
            running[future] = (assembly, *task)


def _draw_shard(*drawing):
    start = time.monotonic()
    write_shard(*drawing)
    return time.monotonic() - start


def _collect(running, active):
    done, _ = concurrent.futures.wait(
        running, return_when=concurrent.futures.FIRST_COMPLETED
    )
    for future in done:
        assembly, split, shard = running.pop(future)
        assembly.add_shard(split, shard, future.result())
        bar = active[assembly]
        bar.update(sum(assembly.examples.values()) - bar.n)


def _finish(root, active):
    """Writes the modules that are complete; their number."""
    complete = [assembly for assembly in active if assembly.is_complete]
    for assembly in complete:
        active.pop(assembly).close()
        write_module(root, assembly)
    return len(complete)


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
