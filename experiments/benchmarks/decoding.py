r"""Times decoding: cached, not cached, exported.

    python -m experiments.benchmarks.decoding

For float32 and bfloat16, batches of 1 and 64 real questions and a model of the
paper's size: answers a second of the model's own decoding, of the same model
decoded as the released code does it (the decoder runs over all of the prefix
at every step, until all rows are done or at the length limit), and of the
exported SavedModel, strings in and out, timed in turn. Then how long the first
answer takes after a SavedModel is loaded and its warm-up requests replayed.

On the JAX backend, which has no SavedModel here, with `--noexport`:

    KERAS_BACKEND=jax python -m experiments.benchmarks.decoding --noexport

The weights are random, so that answers run to the limit: the worst case. With
a trained model, questions of all modules in random order, whose answers end:

    python -m experiments.benchmarks.decoding \
        --weights=saved_models/tp_transformer_mathematics --repeats=3

Answers a second of its exports in each precision, and of the model in float32
decoded as the released code does it, all in turn; beside them how many
questions a second the encoder alone reads, without padding, which no way to
answer them exceeds.
"""

import functools
import json
import pathlib
import tempfile
import time

from absl import flags

from tpt_keras.errors import UsageError

from .. import _cli
from ._compiled import compiled
from ._compiled import matrix_product
from ._problems import middling_problems
from ._problems import mixed_problems
from ._timing import interleaved_medians

FLAGS = flags.FLAGS

flags.DEFINE_string("preset", "tp_transformer", "Name of the model's preset.")
flags.DEFINE_string("weights", None, "Folder of a trained model, see above.")
flags.DEFINE_integer(
    "questions",
    256,
    "Questions to the trained model; an eighth of them one by one.",
)
flags.DEFINE_list("batch_sizes", ["1", "64"], "Questions in a batch.")
flags.DEFINE_list("precisions", ["float32", "bfloat16"], "Dtypes.")
flags.DEFINE_integer("repeats", 5, "Timed calls of each way.")
flags.DEFINE_integer(
    "max_length",
    None,
    "Most tokens decoded; the released code's limit is 50. Default: the "
    "longest answer of the data, and the end symbol.",
)
flags.DEFINE_integer("threads", None, "Threads; default: TensorFlow's choice.")
flags.DEFINE_integer(
    "matrix_size", 4096, "Rows of the matrices whose product is timed."
)
flags.DEFINE_bool("export", True, "Whether to export and time that, too.")
flags.DEFINE_string("output", None, "JSON file for the results.")


def main():
    import keras

    check_backend(keras.backend.backend())
    if FLAGS.threads:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(FLAGS.threads)
        tf.config.threading.set_inter_op_parallelism_threads(FLAGS.threads)
    results = time_trained_model() if FLAGS.weights else time_random_weights()
    if FLAGS.output:
        pathlib.Path(FLAGS.output).write_text(json.dumps(results, indent=2))


def time_random_weights():
    import keras

    from tpt_keras.models import Transformer

    questions, _ = middling_problems(max(map(int, FLAGS.batch_sizes)))
    results = []
    for precision in FLAGS.precisions:
        keras.utils.set_random_seed(0)
        model = Transformer.from_preset(FLAGS.preset, dtype=precision)
        print(f"\n{precision}: a large matrix product makes ", end="")
        print(f"{matrix_product_rate(precision) / 1e9:.0f} GFLOP/s", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            version = export_model(model, precision, folder)
            for batch_size in map(int, FLAGS.batch_sizes):
                result = {
                    "precision": precision,
                    "batch_size": batch_size,
                    "max_length": max_length(model),
                }
                result |= time_decoding(model, version, questions[:batch_size])
                results.append(result)
                report(result)
            if version:
                results.append(time_first_answer(version, questions[0]))
    return results


def time_trained_model():
    """Answers a second of a trained model's exports, to mixed questions."""
    from tpt_keras.models.load_model import load_model
    from tpt_keras.models.same_model import same_model

    model = same_model(load_model(FLAGS.weights), "float32")
    again = all_again_decoder(model)
    encoders = {
        precision: encoder(same_model(model, precision))
        for precision in FLAGS.precisions
        if precision != "int8"  # which is computed in float32
    }
    results = []
    with tempfile.TemporaryDirectory() as folder:
        versions = {
            precision: export_model(model, precision, f"{folder}/{precision}")
            for precision in FLAGS.precisions
        }
        for batch_size in map(int, FLAGS.batch_sizes):
            # One at least.
            count = -(-FLAGS.questions // (8 if batch_size == 1 else 1))
            questions, targets = mixed_problems(count)
            batches = [
                questions[start : start + batch_size]
                for start in range(0, count, batch_size)
            ]
            ways = {
                "all_again": lambda batches=batches: [
                    model.tokenizer.decode(row)
                    for batch in batches
                    for row in again(model.tokenizer.encode_batch(batch))
                ]
            } | {
                precision: functools.partial(
                    saved_model_texts, version, batches
                )
                for precision, version in versions.items()
            }
            limits = {
                f"{precision}_encoder": functools.partial(
                    encode_all, encode, model.tokenizer, questions, batch_size
                )
                for precision, encode in encoders.items()
            }
            results.append(time_ways(ways, limits, targets, batch_size))
        results += [
            {"precision": precision, **time_first_answer(version, questions[0])}
            for precision, version in versions.items()
        ]
    return results


def encoder(model):
    """The encoder, compiled."""
    return compiled(model.encode, [((None, None), "int32")], model)


def encode_all(encode, tokenizer, questions, batch_size):
    """Encodes questions, those of like length together as an export does."""
    from tpt_keras.serving.export.length_groups import GROUP_SIZE

    size = min(batch_size, GROUP_SIZE)
    questions = sorted(questions, key=len)
    for start in range(0, len(questions), size):
        encode(tokenizer.encode_batch(questions[start : start + size]))


def time_ways(ways, limits, targets, batch_size):
    """Answers a second of ways to answer the same questions, and how many.

    Beside them, how many questions a second go through what all need.
    """
    answers = {name: way() for name, way in ways.items()}
    for limit in limits.values():
        limit()
    medians = interleaved_medians(ways | limits, FLAGS.repeats, warmup=0)
    result = {"batch_size": batch_size, "questions": len(targets)}
    print(f"\nbatch {batch_size}, {len(targets)} mixed questions:")
    for name in ways:
        rate = len(targets) / medians[name]
        times = medians["all_again"] / medians[name]
        same = sum(map(str.__eq__, answers[name], answers["all_again"]))
        right = sum(map(str.__eq__, answers[name], targets))
        result[name] = {"rate": rate, "same": same, "right": right}
        print(
            f"  {name}: {rate:.1f} answers/s, {times:.1f} times, "
            f"{same} answers the same, {right} right",
            flush=True,
        )
    for name in limits:
        result[name] = len(targets) / medians[name]
        print(f"  {name}: {result[name]:.1f} questions/s", flush=True)
    return result


@functools.cache
def loaded_signature(version):
    import tensorflow as tf

    loaded = tf.saved_model.load(str(version))
    # With it, for the signature alone does not keep the variables.
    return loaded, loaded.signatures["serving_default"]


def saved_model_texts(version, batches):
    import tensorflow as tf

    _, signature = loaded_signature(version)
    return [
        answer.decode()
        for batch in batches
        for answer in signature(questions=tf.constant(batch))["answers"].numpy()
    ]


def check_backend(backend):
    if backend != "tensorflow" and (
        FLAGS.export or FLAGS.threads or FLAGS.weights
    ):
        raise UsageError(
            "--export, --threads and --weights are for TensorFlow; with "
            f"KERAS_BACKEND={backend}, say --noexport and leave out the others."
        )


def matrix_product_rate(precision):
    """What the machine can do, in floating-point operations a second."""
    multiply = matrix_product(FLAGS.matrix_size, precision)
    seconds = interleaved_medians({"": multiply}, repeats=3)
    return 2 * FLAGS.matrix_size**3 / seconds[""]


def export_model(model, precision, folder):
    if not FLAGS.export:
        return None
    from tpt_keras.serving.export import export

    return export(
        model,
        folder,
        max_answer_length=max_length(model),
        precision=precision,
    )


def max_length(model):
    return FLAGS.max_length or model.config.max_answer_length + 1


def time_decoding(model, version, questions):
    """Answers a second of every way of decoding."""
    token_ids = model.tokenizer.encode_questions(questions)
    generator = compiled_generator(model)
    again = all_again_decoder(model)
    ways = {
        "all_again": lambda: again(token_ids),
        "cached": lambda: generator(token_ids),
    }
    if version:
        ways["saved_model"] = saved_model_answers(version, questions)
    check_same(ways["all_again"](), ways["cached"]())
    # Each is timed right after itself, as nobody decodes in turn: what one way
    # leaves in the caches slows the other by up to a third.
    medians = interleaved_medians(ways, FLAGS.repeats, untimed=1)
    return {name: len(questions) / medians[name] for name in ways}


def compiled_generator(model):
    from tpt_keras.decoding import Generator

    generator = Generator(model, max_length=max_length(model))
    return lambda token_ids: generator.generate_on_batch(token_ids)[
        "token_ids"
    ][:, 0]


def all_again_decoder(model):
    """Greedy decoding as the released code does it, the parts compiled."""
    import numpy as np
    from keras import ops

    tokens = ((None, None), "int32")
    state = ((None, None, model.config.hidden_dim), model.compute_dtype)

    def next_ids(encoder_token_ids, encoder_output, prefix):
        x = model.embedding(prefix)
        for cell in model.decoder_cells:
            x = cell(
                x,
                encoder_output,
                decoder_padding_mask=model.padding_mask(prefix),
                encoder_padding_mask=model.padding_mask(encoder_token_ids),
            )
        logits = model.embedding(x, reverse=True)
        return ops.argmax(logits[:, -1:], axis=-1)

    encode = compiled(model.encode, [tokens], model)
    next_ids = compiled(next_ids, [tokens, state, tokens], model)

    def decode(token_ids):
        token_ids = ops.convert_to_tensor(token_ids)
        encoder_output = encode(token_ids)
        prefix = ops.full(
            (len(token_ids), 1), model.tokenizer.start_id, dtype="int32"
        )
        is_ended = np.zeros(len(token_ids), bool)
        for _ in range(max_length(model)):
            ids = next_ids(token_ids, encoder_output, prefix)
            prefix = ops.concatenate([prefix, ids], axis=1)
            is_ended |= (
                ops.convert_to_numpy(ids)[:, 0] == model.tokenizer.end_id
            )
            if is_ended.all():
                break
        return ops.convert_to_numpy(prefix)[:, 1:]

    return decode


def saved_model_answers(version, questions):
    import tensorflow as tf

    _, signature = loaded_signature(version)
    questions = tf.constant(questions)
    return lambda: signature(questions=questions)["answers"].numpy()


def check_same(answers, others):
    """Both ways decode the same, or the comparison is worth nothing."""
    same = (answers == others[:, : answers.shape[1]]).all(axis=1).mean()
    # Rounding may tip the balance between two tokens now and then.
    if same < 0.9:
        raise AssertionError(f"only {same:.0%} of the answers are the same")


def time_first_answer(version, question):
    """Seconds of the first answer after loading, and of a later one."""
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    from tpt_keras.serving.versions import WARMUP_ASSET

    start = time.perf_counter()
    loaded = tf.saved_model.load(str(version))
    signature = loaded.signatures["serving_default"]
    path = str(version / WARMUP_ASSET)
    for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        inputs = log.predict_log.request.inputs
        signature(questions=tf.make_ndarray(inputs["questions"]))
    loading = time.perf_counter() - start
    question = tf.constant([question])

    def ask():
        begin = time.perf_counter()
        signature(questions=question)["answers"].numpy()
        return time.perf_counter() - begin

    first = ask()
    steady = sorted(ask() for _ in range(9))[4]
    print(
        f"  first answer after loading and warm-up ({loading:.1f} s): "
        f"{first:.3f} s, steady {steady:.3f} s ({first / steady:.2f} times)"
    )
    return {"load_seconds": loading, "first": first, "steady": steady}


def report(result):
    ways = ", ".join(
        f"{name} {result[name]:.2f}"
        for name in ("all_again", "cached", "saved_model")
        if name in result
    )
    print(f"  batch {result['batch_size']}: answers/s: {ways}; ", end="")
    print(f"cached {result['cached'] / result['all_again']:.1f} times", end="")
    if "saved_model" in result:
        share = result["saved_model"] / result["cached"]
        print(f", SavedModel {share:.2f} of the Keras model", end="")
    print(flush=True)


if __name__ == "__main__":
    _cli.run(main)
