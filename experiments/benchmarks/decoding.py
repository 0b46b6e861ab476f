r"""Times answers beside PyTorch's.

    pip install tpt_keras[onnx,torch]
    tpt_keras benchmarks.decoding

Answers to the same questions of all modules, sorted by length, in float32 and
bfloat16, of

- `pytorch`: a twin of the model in plain PyTorch with a KV cache, which decodes
  until all answers of the batch have ended. Its weights are in bfloat16, which
  is faster than autocast,
- `ours`: the model's `Generator`,
- `ours, exported`: its SavedModel with strings in and out, on TensorFlow; also
  with one thread for each op,
- `ours, ONNX`: its ONNX graphs, in float32 and int8.

Each has a process of its own, and they are timed in turn.
"""

import functools
import os
import subprocess
import sys
import tempfile

from absl import flags

from tpt_keras.answer import Answer
from tpt_keras.errors import require

from .. import _flags
from . import _measure

FLAGS = flags.FLAGS

_flags.define_model(default=_flags.SOLVER)
flags.DEFINE_integer("questions", 256, "Number of questions.")
flags.DEFINE_list("batch_sizes", ["1", "64"], "Questions in a batch.")
flags.DEFINE_list(
    "precisions", ["float32", "bfloat16"], "Dtypes, or int8 for ONNX."
)
flags.DEFINE_integer("repeats", 3, "Timed passes of each way.")


def check():
    require("torch", "torch")
    require("onnxruntime", "onnx")
    require("onnxscript", "onnx")


def main():
    print(f"{_measure.processor()}\n")
    questions, _ = _measure.mixed_problems(FLAGS.questions)
    questions.sort(key=len)
    _measure.print_table(
        row
        for precision in FLAGS.precisions
        for row in time_ways(precision, questions)
    )


def ways_of(precision):
    """Returns what makes each way of answering, with its arguments."""
    arguments = FLAGS.model, precision
    makers = {
        "pytorch": (pytorch, *arguments),
        "ours": (ours, *arguments),
    }
    if precision != "int8" and os.environ["KERAS_BACKEND"] == "tensorflow":
        makers["ours, exported"] = (exported, *arguments)
        makers["ours, exported, 1 thread"] = (exported, *arguments, 1)
    if precision != "bfloat16":
        makers["ours, ONNX"] = (onnx, *arguments)
    return makers


def time_ways(precision, questions):
    """Yields a row for every batch size and way of answering."""
    with _measure.in_processes(ways_of(precision)) as ways:
        for batch_size in map(int, FLAGS.batch_sizes):
            calls = {
                name: functools.partial(way, questions, batch_size)
                for name, way in ways.items()
            }
            # Also the warm-up: every shape is new once.
            answers = {name: call() for name, call in calls.items()}
            seconds = _measure.interleaved_medians(calls, FLAGS.repeats)
            for name, median in seconds.items():
                equal = map(str.__eq__, answers[name], answers["ours"])
                yield {
                    "precision": precision,
                    "batch": batch_size,
                    "way": name,
                    "answers/s": len(questions) / median,
                    "times pytorch": seconds["pytorch"] / median,
                    "answers as ours": f"{sum(equal)} of {len(questions)}",
                }


def load(name, precision):
    from tpt_keras.models.stored import load_model
    from tpt_keras.models.weights import copy_model

    dtype = "float32" if precision == "int8" else precision
    return copy_model(load_model(name), dtype)


def pytorch(name, precision):
    """Returns a function of questions and a batch size to answers."""
    import torch

    from . import _pytorch_twin

    model = load(name, "float32")
    twin = _pytorch_twin.Twin(model)
    if precision == "bfloat16":
        twin.bfloat16()
    tokenizer, longest = model.tokenizer, model.config.max_answer_length

    def answer(batch):
        source_ids = torch.as_tensor(
            tokenizer.encode_batch(batch, questions=True)
        )
        found = twin.generate(source_ids, longest)
        return [Answer(tokenizer.decode(ids)) for ids in found.tolist()]

    return _in_batches(answer)


def ours(name, precision):
    """The same of the Keras model."""
    from tpt_keras.decoding import Generator

    return _in_batches(Generator(load(name, precision)).answer)


def exported(name, precision, threads=None):
    """The same of its SavedModel, with as many threads for each op."""
    if threads:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
    from tpt_keras.serving import SavedModel
    from tpt_keras.serving.export import export

    model = load(name, precision)
    with tempfile.TemporaryDirectory() as folder:
        path = export(model, folder, precision=precision)
        return _in_batches(SavedModel(path).answer)


def onnx(name, precision):
    """The same of its ONNX graphs."""
    from tpt_keras.serving import OnnxModel

    command = [
        *(sys.executable, "-m", __package__.rpartition(".")[0], "export"),
        *("--format=onnx", f"--model={name}"),
        f"--precision={precision}",
    ]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [*command, f"--export_dir={folder}"],
            # A process has one backend.
            env={**os.environ, "KERAS_BACKEND": "torch"},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return _in_batches(OnnxModel(folder).answer)


def _in_batches(answer):
    return lambda questions, batch_size: [
        each.text
        for start in range(0, len(questions), batch_size)
        for each in answer(questions[start : start + batch_size])
    ]
