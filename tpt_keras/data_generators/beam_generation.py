"""Generates modules on many machines, with Apache Beam."""

import apache_beam as beam

from tpt_keras.data_generators.problem_generation import unfinished_assemblies
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
    """
    assemblies = unfinished_assemblies(
        modules, root, train_examples, evaluation_examples, seed
    )
    while assemblies:
        tasks = [
            (assembly, *task)
            for assembly in assemblies
            for task in iter(assembly.next_shard, None)
        ]
        if tasks:
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
        for assembly in [a for a in assemblies if a.is_complete]:
            assemblies.remove(assembly)
            write_module(root, assembly)
