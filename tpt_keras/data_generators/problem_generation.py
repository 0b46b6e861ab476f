"""Generates whole modules, in parallel, into files of the official layout."""

import concurrent.futures
import json
import multiprocessing
import shutil
import time

import tqdm

from tpt_keras.data_generators import official_text
from tpt_keras.data_generators.mathematics_modules import EVALUATION_SPLITS
from tpt_keras.data_generators.mathematics_modules import SPLITS
from tpt_keras.data_generators.mathematics_modules import TRAIN_SPLITS
from tpt_keras.data_generators.module_assembly import ModuleAssembly
from tpt_keras.data_generators.problem_shards import write_shard


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
    `<module>.json`, with what was asked for and what was dropped.

    Args:
        modules: Names of training modules.
        root: Folder to write to.
        train_examples: Training problems of each module.
        evaluation_examples: Problems of each module's evaluation splits.
        seed: Seed; the result depends on nothing else.
        num_workers: Number of processes.
    """
    assemblies = {}
    for module in modules:
        if not report_path(root, module).exists():
            assemblies[module] = ModuleAssembly(
                module,
                split_counts(module, train_examples, evaluation_examples),
                root / "shards" / module,
                seed,
            )
    bars = {
        module: tqdm.tqdm(
            desc=module,
            total=sum(assembly.counts.values()),
            unit=" problems",
            leave=False,
        )
        for module, assembly in assemblies.items()
    }
    # Spawned, for TensorFlow does not survive a fork.
    with concurrent.futures.ProcessPoolExecutor(
        num_workers, mp_context=multiprocessing.get_context("spawn")
    ) as pool:
        running = {}
        while assemblies:
            _fill(pool, running, assemblies, 2 * num_workers)
            for module in [m for m, a in assemblies.items() if a.is_complete]:
                assembly = assemblies.pop(module)
                _write_module(root, assembly, seed)
                bars.pop(module).close()
            if running:
                _collect(running, bars)


def report_path(root, module):
    """The file that says that a module is whole, and how it was made."""
    return root / f"{module}.json"


def _fill(pool, running, assemblies, most):
    """Gives the pool work, of the modules that had least of its time first.

    So a slow module takes no more than its share while others wait.
    """
    for assembly in sorted(assemblies.values(), key=lambda a: a.seconds):
        while len(running) < most:
            task = assembly.next_shard()
            if task is None:
                break
            split, shard = task
            future = pool.submit(
                _draw_shard,
                assembly.shard_path(split, shard),
                official_text.split_module(split, assembly.module),
                split,
                shard,
                assembly.seed,
            )
            running[future] = (assembly, split, shard)


def _draw_shard(path, module, split, shard, seed):
    start = time.monotonic()
    write_shard(path, module, split, shard, seed)
    return time.monotonic() - start


def _collect(running, bars):
    done, _ = concurrent.futures.wait(
        running, return_when=concurrent.futures.FIRST_COMPLETED
    )
    for future in done:
        assembly, split, shard = running.pop(future)
        assembly.add_shard(split, shard, future.result())
        bar = bars[assembly.module]
        bar.update(sum(map(len, assembly.problems.values())) - bar.n)


def _write_module(root, assembly, seed):
    """Writes a whole module; its report last."""
    module = assembly.module
    for split in SPLITS:
        if assembly.problems.get(split):
            official_text.write_problems(
                official_text.text_path(root, split, module),
                assembly.problems[split],
            )
    report = {
        "seed": seed,
        "examples": {s: len(p) for s, p in assembly.problems.items()},
        "wanted": assembly.counts,
        "dropped": assembly.dropped,
    }
    report_path(root, module).write_text(json.dumps(report, indent=2))
    shutil.rmtree(root / "shards" / module, ignore_errors=True)
    tqdm.tqdm.write(
        f"{module}: "
        + ", ".join(f"{n} {split}" for split, n in report["examples"].items())
        + "; dropped "
        + ", ".join(f"{n} {why}" for why, n in report["dropped"].items())
    )
