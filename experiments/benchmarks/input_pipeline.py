r"""Measures the input pipeline.

    python -m experiments.prepare_data --modules=all --data_dir=data \
        --train_examples=2000 --evaluation_examples=100
    python -m experiments.benchmarks.input_pipeline --data_dir=data

For every batch size: the shares of padding in the cells of an epoch, also if
batches are padded to the pairs of lengths alone, as on JAX; and the examples a
second of the pipeline.
"""

import time

import numpy as np
from absl import flags

from .. import _cli
from . import _measure

FLAGS = flags.FLAGS

flags.DEFINE_string("data_dir", "data", "Folder that prepare_data filled.")
flags.DEFINE_list("modules", ["all"], "Names of modules, patterns, or all.")
flags.DEFINE_list("batch_sizes", ["64", "1024"], "Problems in a batch.")


def main():
    _cli.import_tensorflow()
    _measure.print_table(map(measure, map(int, FLAGS.batch_sizes)))


def measure(batch_size):
    """Returns the row of a batch size."""
    batches = training_batches(batch_size)
    return {
        "batch": batch_size,
        "steps an epoch": batches.steps_per_epoch,
        **padding(batches),
        "examples/s": examples_per_second(batches),
    }


def training_batches(batch_size):
    """Returns the batches of a training."""
    from tpt_keras.data_generators import open_task
    from tpt_keras.data_generators.batches import ProblemBatches
    from tpt_keras.data_generators.examples import ExampleMixture
    from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer

    task = open_task("mathematics_dataset", FLAGS.data_dir, FLAGS.modules)
    examples = ExampleMixture(list(task.examples("train").values()))
    return ProblemBatches(examples, CharacterTokenizer(), batch_size)


def padding(batches):
    """Returns the shares of padding in an epoch."""
    pairs = batches.length_pairs
    real, cells, cells_of_pairs = np.zeros((3, 2))
    for inputs, targets in batches.iterate(num_epochs=1):
        parts = inputs["encoder_token_ids"], targets
        lengths = [tokens.shape[1] for tokens in parts]
        # The shape that the batch is padded to on JAX.
        pair = min(
            (pair for pair in pairs if all(np.array(pair) >= lengths)),
            key=sum,
            default=lengths,
        )
        real += [(tokens != 0).sum() for tokens in parts]
        cells += np.array(lengths) * len(targets)
        cells_of_pairs += np.array(pair) * len(targets)
    shares = [*(1 - real / cells), *(1 - real / cells_of_pairs)]
    names = ("source", "target", "source of pairs", "target of pairs")
    return dict(zip((f"padding: {name}" for name in names), shares))


def examples_per_second(batches):
    """Returns the speed of the pipeline, through tf.data."""
    start = time.perf_counter()
    examples = sum(
        targets.shape[0] for _, targets in batches.dataset(num_epochs=2)
    )
    return examples / (time.perf_counter() - start)


if __name__ == "__main__":
    _cli.run(main)
