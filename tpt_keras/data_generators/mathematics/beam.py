"""Generates modules on many machines, with Apache Beam."""

import contextlib
import functools
import sys

import apache_beam as beam

from tpt_keras.data_generators.mathematics.generator import generate_modules
from tpt_keras.data_generators.mathematics.shards import write_shard


def generate_modules_with_beam(
    modules,
    root,
    train_examples,
    evaluation_examples,
    seed=0,
    options=None,
):
    """Generates the same problems as `generate_modules`.

    Drawing, which takes most of the time, runs in Beam, shard by shard, into a
    folder that all workers share. The shards are then assembled here, and a
    further round draws more where duplicates left a split short.

    Args:
        modules: Names of training modules.
        root: Folder to write to, which every worker reaches.
        train_examples: Training problems of each module.
        evaluation_examples: Problems of each module's evaluation splits.
        seed: Seed. The result depends on nothing else.
        options: Beam's `PipelineOptions`. Defaults to the local runner.

    Raises:
        UsageError: See `generate_modules`.
    """
    generate_modules(
        modules,
        root,
        train_examples,
        evaluation_examples,
        seed,
        # Beam distributes the work: it gets a whole round at once.
        num_workers=sys.maxsize // 2,
        drawing=contextlib.nullcontext(functools.partial(_draw, options)),
    )


def _draw(options, drawings):
    """Draws the shards of a round, all of them at once."""
    with beam.Pipeline(options=options) as pipeline:
        _ = (
            pipeline
            | beam.Create(list(drawings.values()))
            | beam.Reshuffle()
            | beam.MapTuple(write_shard)
        )
    return dict.fromkeys(drawings, 0.0)
