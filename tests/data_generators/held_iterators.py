"""Ends while iterators of datasets are alive; see `tensorflow_dataset_test`."""

import random
import time

from tests.data_generators.files import examples_of
from tpt_keras.data_generators.batches import ProblemBatches
from tpt_keras.data_generators.examples import ExampleMixture
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer

held = []


class SlowExamples(ExampleMixture):
    """Reads for a while, so that the process ends meanwhile."""

    def read(self, indices):
        end = time.monotonic() + random.uniform(0.0, 0.02)
        while time.monotonic() < end:
            pass
        return super().read(indices)


def main():
    examples = examples_of(("1" * (1 + index % 9), "2") for index in range(100))
    for _ in range(4):
        batches = ProblemBatches(
            SlowExamples([examples]), CharacterTokenizer(), 1
        )
        held.append(iter(batches.dataset()))
        for _ in range(random.randint(1, 20)):
            next(held[-1])
    print("ends")


if __name__ == "__main__":
    main()
