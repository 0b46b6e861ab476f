"""Ends processes that still hold iterators; see `tensorflow_dataset_test`.

TensorFlow is imported once and forked: a process of its own for each ending
would take seconds more.

    python -m tests.data_generators.held_iterators NAME...
"""

import os
import random
import sys
import time

import tensorflow as tf

from tests.data_generators.files import examples_of
from tpt_keras.data_generators.batches import ProblemBatches
from tpt_keras.data_generators.examples import ExampleMixture
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer

SECONDS = 60

held = []


class SlowExamples(ExampleMixture):
    """Reads for a while, so that processes end meanwhile."""

    def read(self, indices):
        end = time.monotonic() + random.uniform(0.0, 0.02)
        while time.monotonic() < end:
            pass
        return super().read(indices)


def hold(dataset):
    iterator = iter(dataset)
    for _ in range(random.randint(1, 20)):
        next(iterator)
    held.append(iterator)


def batches():
    examples = examples_of(("1" * (1 + index % 9), "2") for index in range(100))
    return ProblemBatches(SlowExamples([examples]), CharacterTokenizer(), 1)


def several():
    for _ in range(4):
        hold(batches().dataset())


def distributed():
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    hold(
        strategy.distribute_datasets_from_function(
            lambda context: batches().dataset(shards=range(2), num_shards=2)
        )
    )


def main():
    for name in sys.argv[1:]:
        process = os.fork()
        if not process:
            globals()[name]()
            return
        print(name, ending(process), flush=True)


def ending(process):
    """The exit status of a process, or "hangs"."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        finished, status = os.waitpid(process, os.WNOHANG)
        if finished:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(process, 9)
    os.waitpid(process, 0)
    return "hangs"


if __name__ == "__main__":
    main()
