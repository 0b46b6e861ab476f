r"""Times decoding: the model's own, and exported.

    python -m experiments.benchmarks.decoding

For every precision and batch size, in answers a second: the model's own
decoding with a KV cache; and, on TensorFlow, the exported SavedModel with
strings in and out. The weights are random, so that answers reach the length
limit, and the questions have similar lengths.

With a trained model, whose answers end early, and questions of all modules and
lengths in random order:

    python -m experiments.benchmarks.decoding --questions=128 --repeats=3 \
        --weights=saved_models/tp_transformer_mathematics
"""

import functools
import tempfile

from absl import flags

from .. import _cli
from . import _measure

FLAGS = flags.FLAGS

flags.DEFINE_string("preset", "tp_transformer", "Name of the model's preset.")
flags.DEFINE_string("weights", None, "Folder of a trained model.")
flags.DEFINE_integer("questions", None, "Questions. Default: one batch.")
flags.DEFINE_list("batch_sizes", ["1", "64"], "Questions in a batch.")
flags.DEFINE_list(
    "precisions", ["float32", "bfloat16"], "Dtypes, or int8 for an export."
)
flags.DEFINE_integer("repeats", 5, "Timed calls of each way.")
flags.DEFINE_integer(
    "max_length",
    None,
    "Most tokens decoded; the released code's limit is 50. Default: the "
    "longest answer of the data and the end symbol.",
)


def main():
    _measure.print_table(
        row for precision in FLAGS.precisions for row in time_ways(precision)
    )


def time_ways(precision):
    """Yields a row of answers a second for every batch size."""
    import keras

    model = load(precision)
    draw = _measure.middling_problems
    if FLAGS.weights:
        draw = _measure.mixed_problems
    with tempfile.TemporaryDirectory() as folder:
        ways = {"cached": cached(model)}
        if keras.backend.backend() == "tensorflow":
            ways["exported"] = exported(model, precision, folder)
        for batch_size in map(int, FLAGS.batch_sizes):
            count = FLAGS.questions or batch_size
            questions, _ = draw(count)
            calls = {
                name: functools.partial(answer_all, way, questions, batch_size)
                for name, way in ways.items()
            }
            medians = _measure.interleaved_medians(
                calls, FLAGS.repeats, warmup=1, untimed=1
            )
            row = {"precision": precision, "batch": batch_size}
            for name, seconds in medians.items():
                row[name] = count / seconds
            yield row


def answer_all(way, questions, batch_size):
    return [
        text
        for start in range(0, len(questions), batch_size)
        for text in way(questions[start : start + batch_size])
    ]


def load(precision):
    """Returns the trained model, or one with random weights."""
    import keras

    from tpt_keras.models import Transformer
    from tpt_keras.models.load_model import load_model
    from tpt_keras.models.weights import copy_model

    dtype = "float32" if precision == "int8" else precision
    if FLAGS.weights:
        return copy_model(load_model(FLAGS.weights), dtype)
    keras.utils.set_random_seed(0)
    return Transformer.from_preset(FLAGS.preset, dtype=dtype)


def max_length(model):
    return FLAGS.max_length or model.config.max_answer_length + 1


def cached(model):
    """Returns a function of questions to answers."""
    from tpt_keras.decoding import Generator

    generator = Generator(model, max_length=max_length(model))
    return lambda questions: [
        answer.text for answer in generator.answer(questions)
    ]


def exported(model, precision, folder):
    """Returns the same function of the model's SavedModel."""
    from tpt_keras.serving import SavedModel
    from tpt_keras.serving.export import export

    saved_model = SavedModel(
        export(model, folder, max_length(model), precision=precision)
    )
    return lambda questions: [
        answer.text for answer in saved_model.answer(questions)
    ]


if __name__ == "__main__":
    _cli.run(main)
