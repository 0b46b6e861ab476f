"""Times training on problems as they come.

    pip install tpt_keras[torch]
    python -m experiments.benchmarks.mixed_batches

Real tokens a second of the `tp_transformer` preset, all of a training's step:
ours, on batches of like lengths as `experiments.train` makes them, in float32
and mixed_bfloat16; and the same model in PyTorch, in float32, on batches in
random order, padded to their longest, which is how the released code trains.
(The PyTorch model is our own writing, whose attention is PyTorch's fused one.)
Batches are timed in turn.
"""

import json
import pathlib
import time

import numpy as np
from absl import flags

from .. import _cli
from ._compiled import matrix_product
from ._problems import mixed_problems
from ._steps import CLIPNORM
from ._steps import preset_trainer
from ._timing import interleaved_medians

FLAGS = flags.FLAGS

PRESET = "tp_transformer"

flags.DEFINE_integer("batch_size", 64, "Problems in a batch.")
flags.DEFINE_integer("batches", 12, "Batches of each way, drawn at random.")
flags.DEFINE_integer("problems", 20_000, "Problems that batches are made of.")
flags.DEFINE_list(
    "precisions", ["float32", "mixed_bfloat16"], "Dtype policies of ours."
)
flags.DEFINE_integer(
    "matrix_size", 4096, "Rows of the matrices whose product is timed."
)
flags.DEFINE_string("output", None, "JSON file for the results.")


def main():
    import keras

    problems = Problems(mixed_problems(FLAGS.problems))
    by_length = drawn(batches_by_length(problems))
    steps = {"pytorch": (pytorch_step(), drawn(random_batches(problems)))}
    for precision in FLAGS.precisions:
        keras.config.set_dtype_policy(precision)
        trainer = preset_trainer(PRESET, xla=False)
        steps[precision] = (trainer.train_on_batch, by_length)
    results = {"matrix_product_flops": matrix_product_rates()}
    for name, seconds in time_steps(steps).items():
        results[name] = throughput(seconds, steps[name][1])
    report(results)
    if FLAGS.output:
        pathlib.Path(FLAGS.output).write_text(json.dumps(results, indent=2))


class Problems:
    """A source of problems for `ProblemBatches`."""

    def __init__(self, problems):
        self._columns = [
            np.array([text.encode() for text in texts], object)
            for texts in problems
        ]

    def __len__(self):
        return len(self._columns[0])

    def read(self, indices):
        return tuple(column[indices] for column in self._columns)


def batches_by_length(problems):
    """All batches of an epoch, as a training has them."""
    from tpt_keras.data_generators.batches import ProblemBatches
    from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer

    batches = ProblemBatches(problems, CharacterTokenizer(), FLAGS.batch_size)
    return list(batches.iterate(num_epochs=1))


def random_batches(problems):
    """All batches of an epoch in random order, padded to their longest."""
    from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer

    tokenizer = CharacterTokenizer()
    order = np.random.default_rng(0).permutation(len(problems))
    batches = []
    for start in range(0, len(problems), FLAGS.batch_size):
        source, target = (
            tokenizer.encode_batch([text.decode() for text in texts])
            for texts in problems.read(order[start : start + FLAGS.batch_size])
        )
        inputs = {
            "encoder_token_ids": source,
            "decoder_token_ids": target[:, :-1],
        }
        batches.append((inputs, target[:, 1:]))
    return batches


def drawn(batches):
    """Some of the batches, without the last, which may be smaller."""
    rng = np.random.default_rng(1)
    places = rng.choice(len(batches) - 1, FLAGS.batches, replace=False)
    return [batches[place] for place in places]


def pytorch_step():
    """A training step in PyTorch, of a batch's inputs and targets."""
    import torch

    from tpt_keras.checkpoints import to_reference
    from tpt_keras.models import Transformer

    from ._torch_twin import TorchTwin

    model = Transformer.from_preset(PRESET, dtype="float32")
    twin = TorchTwin(
        to_reference(model), model.config.num_heads, model.tokenizer.pad_id
    )
    weights = list(twin.weights.values())
    optimizer = torch.optim.Adam(weights, lr=1e-4, betas=(0.9, 0.995))

    def step(inputs, targets):
        logits = twin.logits(
            *(
                torch.as_tensor(np.asarray(inputs[name]), dtype=torch.long)
                for name in ("encoder_token_ids", "decoder_token_ids")
            )
        )
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1),
            torch.as_tensor(targets, dtype=torch.long).flatten(),
            ignore_index=twin.pad_id,
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, CLIPNORM)
        optimizer.step()

    return step


def matrix_product_rates():
    """Floating-point operations a second of a large product, by dtype."""
    size = FLAGS.matrix_size
    dtypes = [name.removeprefix("mixed_") for name in FLAGS.precisions]
    products = {dtype: matrix_product(size, dtype) for dtype in dtypes}
    seconds = interleaved_medians(products, repeats=3)
    return {dtype: 2 * size**3 / seconds[dtype] for dtype in dtypes}


def time_steps(steps):
    """Seconds of every batch of each way, the ways in turn."""
    seconds = {name: [] for name in steps}
    # The first, once before: what is traced, and an optimizer's variables.
    for number in (0, *range(FLAGS.batches)):
        for name, (step, batches) in steps.items():
            start = time.perf_counter()
            step(*batches[number])
            seconds[name].append(time.perf_counter() - start)
    return {name: times[1:] for name, times in seconds.items()}


def throughput(seconds, batches):
    """What all batches together come to."""
    tokens = sum(
        int((inputs["encoder_token_ids"] != 0).sum() + (targets != 0).sum())
        for inputs, targets in batches
    )
    cells = sum(
        inputs["encoder_token_ids"].size + targets.size
        for inputs, targets in batches
    )
    return {
        "examples_per_second": len(batches) * FLAGS.batch_size / sum(seconds),
        "real_tokens_per_second": tokens / sum(seconds),
        "padding": 1 - tokens / cells,
        "batch_seconds": seconds,
    }


def report(results):
    for dtype, rate in results["matrix_product_flops"].items():
        print(f"{dtype}: a large matrix product makes {rate / 1e9:.0f} GFLOP/s")
    print("| | examples/s | real tokens/s | times | padding |")
    print("| --- | --- | --- | --- | --- |")
    pytorch = results["pytorch"]["real_tokens_per_second"]
    for name, result in results.items():
        if name == "matrix_product_flops":
            continue
        rate = result["real_tokens_per_second"]
        print(
            f"| {name} | {result['examples_per_second']:.1f} | {rate:.0f} | "
            f"{rate / pytorch:.1f} | {result['padding']:.0%} |"
        )


if __name__ == "__main__":
    _cli.run(main)
