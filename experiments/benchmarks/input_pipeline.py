r"""Measures the input pipeline.

Padding, order, speed, how long a device waits, memory and start:

    python -m experiments.prepare_data --modules=all --data_dir=data \
        --train_examples=2000 --evaluation_examples=100
    python -m experiments.benchmarks.input_pipeline --data_dir=data

Memory and start are measured in processes of their own, on `--large_examples`
problems that repeat the real ones, in a temporary folder.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import numpy as np
from absl import flags

from tpt_keras.errors import UsageError

from .. import _cli

FLAGS = flags.FLAGS

# The longest source and target: 160 and 30 characters, the start and the end.
LIMITS = (162, 31)

# Three windows of batches and more.
WAITING_STEPS = 400

flags.DEFINE_string("data_dir", "data", "Folder that prepare_data filled.")
flags.DEFINE_list("modules", ["all"], "Names of modules, patterns, or all.")
flags.DEFINE_list("batch_sizes", ["64", "1024"], "Problems in a batch.")
flags.DEFINE_float(
    "step_seconds", 0.045, "A step on a device that may wait for batches."
)
flags.DEFINE_integer("large_examples", 5_000_000, "Examples to read.")
flags.DEFINE_integer("small_examples", 500_000, "Examples to compare with.")
flags.DEFINE_string("output", None, "JSON file for the results.")
# How this file calls itself to measure in a fresh process.
flags.DEFINE_string("probe", None, "Folder of the token cache to read.")
flags.DEFINE_integer("probe_start_step", 0, "First batch of the probe.")
flags.DEFINE_integer("probe_examples", 0, "Examples the probe reads.")


def main():
    if FLAGS.probe:
        probe()
        return
    results = {"padding": padding_and_order()}
    results["examples_per_second"] = examples_per_second()
    results["waiting"] = waiting()
    results["train_step"] = train_step_examples_per_second()
    print(
        f"tp_transformer's training step takes {results['train_step']:.0f} "
        "examples/s of batch 64"
    )
    results |= memory_and_start()
    if FLAGS.output:
        pathlib.Path(FLAGS.output).write_text(json.dumps(results, indent=2))


def training_source():
    """The mixture of the modules, and how many problems each has."""
    from tpt_keras.data_generators import open_task
    from tpt_keras.data_generators import select_groups
    from tpt_keras.data_generators.examples import ExampleMixture

    place = ("mathematics_dataset", FLAGS.data_dir)
    task = open_task(*place, select_groups(*place, FLAGS.modules))
    parts = list(task.training_examples().values())
    return ExampleMixture(parts), [len(part) for part in parts]


class _Recorder:
    """Examples that record the places that were read."""

    def __init__(self, source):
        self._source = source
        self.vocabulary = source.vocabulary
        self.reads = []

    def __len__(self):
        return len(self._source)

    def read(self, indices):
        self.reads.append(np.array(indices))
        return self._source.read(indices)


def make_batches(source, batch_size):
    from tpt_keras.data_generators.batches import ProblemBatches
    from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer

    return ProblemBatches(source, CharacterTokenizer(), batch_size)


def padding_and_order():
    """Share of padding in an epoch; that it visits every example once."""
    from tpt_keras.training.length_grid import LengthGrid

    results = {}
    mixture, lengths = training_source()
    print(f"{len(mixture)} problems of {len(lengths)} modules")
    if len(set(lengths)) > 1:
        print(f"  modules hold {min(lengths)} to {max(lengths)} problems")
    for batch_size in map(int, FLAGS.batch_sizes):
        batches = make_batches(mixture, batch_size)
        # For which the first problems are read.
        grid = LengthGrid(batches.length_pairs, LIMITS)
        batches.source = recorder = _Recorder(mixture)
        padding, cells, cells_of_few = np.zeros((3, 2))
        for inputs, targets in batches.iterate(num_epochs=1):
            source = inputs["encoder_token_ids"]
            lengths = grid.pair(source.shape[1], targets.shape[1])
            cells_of_few += np.array(lengths) * len(targets)
            for place, tokens in enumerate((source, targets)):
                padding[place] += (tokens == 0).sum()
                cells[place] += tokens.size
        visited = np.sort(np.concatenate(recorder.reads))
        if not np.array_equal(visited, np.arange(len(mixture))):
            raise AssertionError("An epoch did not visit every example once.")
        source, target = padding / cells
        few_source, few_target = 1 - (cells - padding) / cells_of_few
        results[batch_size] = {
            "source_padding": source,
            "target_padding": target,
            "few_lengths": grid.pairs,
            "source_padding_of_few_lengths": few_source,
            "target_padding_of_few_lengths": few_target,
            "modules_in_a_batch": modules_in_a_batch(mixture, batch_size),
        }
        print(
            f"  batch {batch_size}: padding {source:.1%} of source cells, "
            f"{target:.1%} of target cells; "
            f"{results[batch_size]['modules_in_a_batch']} modules in a batch "
            "(fewest, median); every example once"
        )
        print(
            f"    with the lengths {grid.pairs} alone: {few_source:.1%} and "
            f"{few_target:.1%}"
        )
    return results


def modules_in_a_batch(mixture, batch_size):
    """Fewest and median number of modules among an epoch's batches."""
    owners = []

    class Owners:
        def __len__(self):
            return len(mixture)

        def read(self, indices):
            questions, answers = mixture.read(indices)
            owners.append(mixture.owners(indices))
            # The answer is replaced by its owner's number, as long as it was.
            return questions, np.array(
                [
                    b"%0*d" % (max(len(answer), 2), owner)
                    for answer, owner in zip(answers, owners[-1])
                ],
                dtype=object,
            )

    counts = []
    batches = make_batches(Owners(), batch_size)
    for _, targets in batches.iterate(num_epochs=1):
        decoded = [batches.tokenizer.decode(row) for row in targets]
        counts.append(len({int(text) for text in decoded}))
    return int(min(counts)), int(np.median(counts))


def examples_per_second():
    """Speed of the pipeline alone, through tf.data."""
    results = {}
    mixture, _ = training_source()
    for batch_size in map(int, FLAGS.batch_sizes):
        rates = []
        for _ in range(3):
            dataset = make_batches(mixture, batch_size).dataset(num_epochs=2)
            examples = 0
            start = time.perf_counter()
            for _, targets in dataset:
                examples += targets.shape[0]
            rates.append(examples / (time.perf_counter() - start))
        results[batch_size] = float(np.median(rates))
        print(
            f"  batch {batch_size}: {results[batch_size]:.0f} examples/s alone"
        )
    return results


def waiting():
    """Share of its time that a device waits for batches, all else done."""
    from tpt_keras.models import Transformer
    from tpt_keras.training.transformer_trainer import TransformerTrainer

    trainer = TransformerTrainer(Transformer.from_preset("tp_transformer_tiny"))
    results = {}
    mixture, _ = training_source()
    for batch_size in map(int, FLAGS.batch_sizes):
        feed = iter(trainer.feed(make_batches(mixture, batch_size)))
        next(feed)
        seconds = 0.0
        for _ in range(WAITING_STEPS):
            time.sleep(FLAGS.step_seconds)
            start = time.perf_counter()
            next(feed)
            seconds += time.perf_counter() - start
        share = seconds / (seconds + WAITING_STEPS * FLAGS.step_seconds)
        results[batch_size] = share
        print(
            f"  batch {batch_size}: a device that takes {FLAGS.step_seconds} s "
            f"for a step waits {share:.2%} of the time"
        )
    return results


def train_step_examples_per_second():
    from tpt_keras.models import Transformer
    from tpt_keras.training.pytorch_adam import PyTorchAdam
    from tpt_keras.training.transformer_trainer import TransformerTrainer

    trainer = TransformerTrainer(
        Transformer.from_preset("tp_transformer"), global_clipnorm=0.1
    )
    trainer.compile(PyTorchAdam(1e-4), jit_compile=False)
    seconds = []
    batches = make_batches(training_source()[0], 64).iterate()
    for _ in range(6):
        inputs, targets = next(batches)
        start = time.perf_counter()
        trainer.train_on_batch(inputs, targets)
        seconds.append(time.perf_counter() - start)
    return 64 / float(np.median(seconds[1:]))


def memory_and_start():
    """Peak memory of reading much and little; time to a late first batch."""
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for size in (FLAGS.small_examples, FLAGS.large_examples):
            files[size] = pathlib.Path(folder) / str(size)
            write_repeated(files[size], size)
        peaks = {
            size: run_probe(file, 0, size)["peak_megabytes"]
            for size, file in files.items()
        }
        ratio = peaks[FLAGS.large_examples] / peaks[FLAGS.small_examples]
        for size, peak in peaks.items():
            print(f"  reading {size} examples: peak {peak:.0f} MB")
        print(f"  ratio {ratio:.2f}")
        starts = {
            step: run_probe(files[FLAGS.large_examples], step, 64)["seconds"]
            for step in (0, 100_000)
        }
        for step, seconds in starts.items():
            print(f"  first batch from step {step}: {seconds:.2f} s")
        results["peak_megabytes"] = peaks
        results["peak_ratio"] = ratio
        results["start_seconds"] = starts
    return results


def write_repeated(folder, size):
    """Writes a token cache of the real problems, over and over."""
    mixture, _ = training_source()
    texts = mixture.texts(np.arange(len(mixture)))
    folder.mkdir()
    pairs = (texts[index % len(texts)] for index in range(size))
    probed(folder, lambda: {"train": pairs})


def probed(folder, read_splits=None):
    """The examples of a folder's token cache."""
    from tpt_keras.data_generators.token_cache import open_cache
    from tpt_keras.tokenizers.vocabulary import MATHEMATICS_VOCABULARY

    cache = open_cache(folder, MATHEMATICS_VOCABULARY, read_splits)
    return cache.examples(["train"])


def run_probe(path, start_step, examples):
    output = subprocess.run(
        [
            sys.executable,
            "-m",
            f"{__package__}.input_pipeline",
            f"--probe={path}",
            f"--probe_start_step={start_step}",
            f"--probe_examples={examples}",
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return json.loads(output.splitlines()[-1])


def probe():
    """Reads batches of 64; prints the time of the first and the peak."""
    folder = pathlib.Path(FLAGS.probe)
    if not folder.is_dir():
        raise UsageError(f"There is no folder {FLAGS.probe!r}.")
    start = time.perf_counter()
    batches = make_batches(probed(folder), 64)
    read, seconds, peak = 0, None, 0.0
    dataset = batches.dataset(start_step=FLAGS.probe_start_step)
    for number, (_, targets) in enumerate(dataset):
        if seconds is None:
            seconds = time.perf_counter() - start
        read += targets.shape[0]
        if number % 100 == 0:
            peak = max(peak, own_memory())
        if read >= FLAGS.probe_examples:
            break
    print(json.dumps({"seconds": seconds, "peak_megabytes": peak}))


def own_memory():
    """Resident memory of this process in MB, without mapped files.

    The system drops pages of mapped files whenever it needs the memory.
    """
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+) kB", status).group(1)) / 1024


if __name__ == "__main__":
    _cli.run(main)
