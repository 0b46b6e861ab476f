r"""Times decoding: cached, not cached, exported.

    python -m experiments.benchmarks.decoding

For float32 and bfloat16, batches of 1 and 64 real questions and a model of the
paper's size, in answers a second: the model's own decoding with a KV cache;
decoding without a cache, as in the released code (the decoder runs over the
whole prefix at every step); and the exported SavedModel with strings in and
out. The weights are random, so that answers reach the length limit.

On JAX, without a SavedModel:

    KERAS_BACKEND=jax python -m experiments.benchmarks.decoding --noexport

With a trained model, questions of all modules in random order, whose answers
end early. The exports are timed beside decoding without a cache:

    python -m experiments.benchmarks.decoding \
        --weights=saved_models/tp_transformer_mathematics --repeats=3
"""

import functools
import tempfile

from absl import flags

from tpt_keras.errors import UsageError

from .. import _cli
from . import _measure

FLAGS = flags.FLAGS

flags.DEFINE_string("preset", "tp_transformer", "Name of the model's preset.")
flags.DEFINE_string("weights", None, "Folder of a trained model.")
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
    "longest answer of the data and the end symbol.",
)
flags.DEFINE_integer("threads", None, "Threads; default: TensorFlow's choice.")
flags.DEFINE_bool("export", True, "Whether to time the exported model, too.")
flags.DEFINE_string("output", None, "JSON file for the results.")

UNCACHED = "without_cache"


def main():
    import keras

    check_backend(keras.backend.backend())
    if FLAGS.threads:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(FLAGS.threads)
        tf.config.threading.set_inter_op_parallelism_threads(FLAGS.threads)
    results = time_trained_model() if FLAGS.weights else time_random_weights()
    _measure.write_results(FLAGS.output, results)


def check_backend(backend):
    """Refuses flags that are for TensorFlow alone."""
    if backend != "tensorflow" and (
        FLAGS.export or FLAGS.threads or FLAGS.weights
    ):
        raise UsageError(
            "--export, --threads and --weights are for TensorFlow. With "
            f"KERAS_BACKEND={backend}, give --noexport and no other of them."
        )


def time_random_weights():
    """Times every way with random weights and questions of like lengths."""
    import keras

    from tpt_keras.models import Transformer

    questions, _ = _measure.middling_problems(max(map(int, FLAGS.batch_sizes)))
    results = []
    for precision in FLAGS.precisions:
        keras.utils.set_random_seed(0)
        model = Transformer.from_preset(FLAGS.preset, dtype=precision)
        print(precision)
        with tempfile.TemporaryDirectory() as folder:
            answerers = {
                UNCACHED: uncached_decoder(model),
                "cached": cached_decoder(model),
            }
            signature = None
            if FLAGS.export:
                signature = exported(model, precision, folder)
            for batch_size in map(int, FLAGS.batch_sizes):
                batch = questions[:batch_size]
                token_ids = model.tokenizer.encode_questions(batch)
                ways = {
                    name: functools.partial(answer, token_ids)
                    for name, answer in answerers.items()
                }
                if signature:
                    ways["saved_model"] = functools.partial(signature, batch)
                check_same(ways[UNCACHED](), ways["cached"]())
                results.append(
                    {
                        "precision": precision,
                        "max_length": max_length(model),
                        **time_ways(ways, batch_size, batch_size, untimed=1),
                    }
                )
    return results


def time_trained_model():
    """Times a trained model's exports on questions of all lengths."""
    from tpt_keras.models.load_model import load_model
    from tpt_keras.models.weights import copy_model

    model = copy_model(load_model(FLAGS.weights), "float32")
    uncached = uncached_decoder(model)

    def uncached_texts(batch):
        token_ids = model.tokenizer.encode_batch(batch)
        return list(map(model.tokenizer.decode, uncached(token_ids)))

    results = []
    with tempfile.TemporaryDirectory() as folder:
        answerers = {UNCACHED: uncached_texts} | {
            precision: exported(model, precision, f"{folder}/{precision}")
            for precision in FLAGS.precisions
        }
        for batch_size in map(int, FLAGS.batch_sizes):
            count = -(-FLAGS.questions // (8 if batch_size == 1 else 1))
            questions, targets = _measure.mixed_problems(count)
            batches = [
                questions[start : start + batch_size]
                for start in range(0, count, batch_size)
            ]
            ways = {
                name: lambda answer=answer, batches=batches: [
                    text for batch in batches for text in answer(batch)
                ]
                for name, answer in answerers.items()
            }
            right = {
                name: sum(map(str.__eq__, way(), targets))
                for name, way in ways.items()
            }
            result = time_ways(ways, batch_size, count, warmup=0)
            results.append({**result, "questions": count, "right": right})
            print(f"    right answers of {count}: {right}", flush=True)
    return results


def time_ways(ways, batch_size, count, **kwargs):
    """Returns and prints the answers a second of each way."""
    medians = _measure.interleaved_medians(ways, FLAGS.repeats, **kwargs)
    rates = {name: count / seconds for name, seconds in medians.items()}
    print(f"  batch {batch_size}, answers/s:", end="")
    for name, rate in rates.items():
        times = rate / rates[UNCACHED]
        print(f" {name} {rate:.2f} ({times:.1f} times)", end="")
    print(flush=True)
    return {"batch_size": batch_size, **rates}


def max_length(model):
    return FLAGS.max_length or model.config.max_answer_length + 1


def cached_decoder(model):
    """Greedy decoding with a KV cache."""
    from tpt_keras.decoding import Generator

    generator = Generator(model, max_length=max_length(model))
    return lambda token_ids: generator.generate_on_batch(token_ids)[
        "token_ids"
    ][:, 0]


def exported(model, precision, folder):
    """Exports a model and returns a function of questions to answers."""
    import tensorflow as tf

    from tpt_keras.serving.export import export

    version = export(
        model,
        folder,
        max_answer_length=max_length(model),
        precision=precision,
    )
    loaded = tf.saved_model.load(str(version))

    def answer(questions):
        # `loaded` keeps the variables alive.
        signature = loaded.signatures["serving_default"]
        answers = signature(questions=tf.constant(questions))["answers"]
        return [text.decode() for text in answers.numpy()]

    return answer


def uncached_decoder(model):
    """Greedy decoding as in the released code, its parts compiled."""
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

    encode = _measure.compiled(model.encode, [tokens], model)
    next_ids = _measure.compiled(next_ids, [tokens, state, tokens], model)

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


def check_same(answers, others):
    """Raises an error if two ways decode differently."""
    length = min(answers.shape[1], others.shape[1])
    same = (answers[:, :length] == others[:, :length]).all(axis=1).mean()
    # Rounding may change a choice between two tokens.
    if same < 0.9:
        raise AssertionError(f"only {same:.0%} of the answers are the same")


if __name__ == "__main__":
    _cli.run(main)
