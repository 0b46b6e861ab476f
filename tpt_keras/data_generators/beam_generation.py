"""Generates modules on many machines, with Apache Beam."""

import itertools

import apache_beam as beam

from tpt_keras.data_generators.problem_generation import assemblies
from tpt_keras.data_generators.problem_generation import lock_unfinished
from tpt_keras.data_generators.problem_generation import modules_at_once
from tpt_keras.data_generators.problem_generation import write_module
from tpt_keras.data_generators.problem_shards import write_shard


def generate_modules_with_beam(
    modules,
    root,
    train_examples,
    evaluation_examples,
    seed=0,
    options=None,
):
    """Generates the very problems of `problem_generation.generate_modules`.

    Drawing is what takes the time; it runs in Beam, shard by shard, into a
    folder that all workers share. What was drawn is then put together here,
    and where duplicates left a split short, a further round draws more.

    Args:
        modules: Names of training modules.
        root: Folder to write to, which every worker reaches.
        train_examples: Training problems of each module.
        evaluation_examples: Problems of each module's evaluation splits.
        seed: Seed; the result depends on nothing else.
        options: Beam's `PipelineOptions`. Defaults to the local runner.

    Raises:
        UsageError: See `generate_modules`.
    """
    places = modules_at_once(train_examples, evaluation_examples)
    with lock_unfinished(modules, root) as unfinished:
        waiting = assemblies(
            unfinished, root, train_examples, evaluation_examples, seed
        )
        active = []
        while True:
            active += itertools.islice(waiting, places - len(active))
            if not active:
                break
            _draw_missing(active, options)
            for assembly in [a for a in active if a.is_complete]:
                active.remove(assembly)
                write_module(root, assembly)


def _draw_missing(active, options):
    """Draws all the shards that modules are known to need."""
    tasks = [
        (assembly, *task)
        for assembly in active
        for task in iter(assembly.next_shard, None)
    ]
    if not tasks:
        return
    drawings = [
        (str(path), *rest)
        for path, *rest in (a.drawing(*task) for a, *task in tasks)
    ]
    with beam.Pipeline(options=options) as pipeline:
        _ = (
            pipeline
            | beam.Create(drawings)
            | beam.Reshuffle()
            | beam.MapTuple(write_shard)
        )
    for assembly, split, shard in tasks:
        assembly.add_shard(split, shard, seconds=0.0)
