r"""Writes problems as a text, for a language model.

    python -m experiments.write_text --modules=all --data_dir=data \
        --output=problems.txt

The text has a line for every question and one for its answer, in random
order. `experiments.train --text_file` trains on it.
"""

import itertools

from absl import flags

from . import _cli

FLAGS = flags.FLAGS

flags.DEFINE_list(
    "modules", [], "Names of modules, patterns (numbers__*), or all."
)
flags.DEFINE_string("data_dir", "data", "Folder of the data.")
flags.DEFINE_string("dataset", "mathematics_dataset", "See prepare_data.")
flags.DEFINE_integer("max_examples", None, "Most problems. Default: all.")
flags.DEFINE_integer("seed", 0, "Seed of the order.")
flags.DEFINE_string("output", None, "Text file to write.", required=True)

# Problems in one read.
CHUNK = 8192


def main():
    import numpy as np
    import tqdm

    from tpt_keras.data_generators import open_task
    from tpt_keras.data_generators.examples import ExampleMixture
    from tpt_keras.data_generators.examples import random_part
    from tpt_keras.files import whole_file

    task = open_task(FLAGS.dataset, FLAGS.data_dir, FLAGS.modules)
    problems = random_part(
        ExampleMixture(list(task.examples("train").values())),
        seed=FLAGS.seed,
    )
    count = min(len(problems), FLAGS.max_examples or len(problems))
    with (
        whole_file(FLAGS.output) as partial,
        open(partial, "wb") as file,
        tqdm.tqdm(total=count, unit="problem") as progress,
    ):
        for start in range(0, count, CHUNK):
            indices = np.arange(start, min(start + CHUNK, count))
            pairs = problems.texts(indices)
            lines = itertools.chain.from_iterable(pairs)
            file.writelines(f"{line}\n".encode() for line in lines)
            progress.update(len(indices))
    print(FLAGS.output)


if __name__ == "__main__":
    _cli.run(main)
