"""A SavedModel that answers at once, and says which version it is."""

import pathlib

import tensorflow as tf

QUESTIONS = tf.TensorSpec((None,), tf.string, name="questions")
TOKEN_IDS = tf.TensorSpec((None, None), tf.int32)


class ToyModel(tf.Module):
    """Answers a question with itself, after a prefix.

    Args:
        prefix: What every answer begins with.
    """

    def __init__(self, prefix):
        super().__init__()
        # A variable, which only a model that is alive can read.
        self._prefix = tf.Variable(prefix)

    @tf.function(input_signature=[QUESTIONS])
    def answer(self, questions):
        text = tf.strings.unicode_transcode(
            questions, "UTF-8", "UTF-8", errors="ignore"
        )
        status = tf.fill(tf.shape(questions), "OK")
        status = tf.where(questions == "", "EMPTY", status)
        status = tf.where(text == questions, status, "INVALID_UTF8")
        return {
            "answers": tf.where(
                status == "OK", tf.strings.join([self._prefix, questions]), ""
            ),
            "log_probs": tf.where(questions == "nan", float("nan"), -0.5),
            "status": status,
        }

    @tf.function(input_signature=[QUESTIONS])
    def n_best(self, questions):
        return {
            "answers": tf.stack([questions, questions], axis=1),
            "scores": tf.zeros((tf.size(questions), 2)) - 0.25,
        }

    @tf.function(input_signature=[QUESTIONS])
    def echo(self, questions):
        return {"echo_bytes": questions}

    @tf.function(input_signature=[QUESTIONS])
    def count(self, questions):
        return {"count": tf.size(questions)}

    @tf.function(input_signature=[QUESTIONS])
    def fail(self, questions):
        with tf.control_dependencies(
            [tf.debugging.assert_equal(tf.size(questions), -1, "No way.")]
        ):
            return {"answers": tf.identity(questions)}

    @tf.function(input_signature=[TOKEN_IDS, TOKEN_IDS])
    def token_ids(self, encoder_token_ids, decoder_token_ids):
        total = tf.reduce_sum(encoder_token_ids, axis=1, keepdims=True)
        return {"logits": tf.cast(total + decoder_token_ids, tf.float32) / 10}


def save(folder, number, prefix=""):
    """Writes a version as `export` does, by renaming it when it is whole."""
    folder = pathlib.Path(folder)
    model = ToyModel(prefix)
    partial = folder / "partial"
    tf.saved_model.save(
        model,
        str(partial),
        signatures={
            "serving_default": model.answer,
            "n_best": model.n_best,
            "echo": model.echo,
            "count": model.count,
            "fail": model.fail,
            "token_ids": model.token_ids,
        },
    )
    partial.rename(folder / str(number))
    return folder
