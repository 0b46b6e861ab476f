import tensorflow as tf

from tpt_keras.answer import OK
from tpt_keras.serving.export.frozen_weights import FrozenWeights
from tpt_keras.serving.export.length_groups import encode_in_groups
from tpt_keras.tokenizers.graph_tokenizer import GraphTokenizer


class QuestionAnswering(tf.Module):
    """A model from strings to strings, inside TensorFlow's graph.

    A question that cannot be answered gets an empty answer and a status that
    says why; it never fails the others, which may be strangers' questions that
    TF Serving put into the same batch.

    Args:
        generator: A `Generator` with the model and the sampler.
        weights: Scope that gives the model's weights. Defaults to
            `FrozenWeights` of it.
    """

    def __init__(self, generator, weights=None):
        super().__init__(name="question_answering")
        model = generator.model
        self._generator = generator
        self.tokenizer = GraphTokenizer(
            model.tokenizer, model.config.vocabulary_size
        )
        self._max_length = model.config.max_question_length
        self._weights = weights or FrozenWeights(model)

    def _search(self, token_ids):
        """The best answers, found without computing what nobody reads."""
        lengths = tf.math.count_nonzero(
            self._generator.model.padding_mask(token_ids),
            axis=-1,
            dtype=tf.int32,
        )
        order = tf.argsort(lengths, stable=True)
        token_ids = tf.gather(token_ids, order)
        cache = encode_in_groups(
            self._generator.init_cache, token_ids, tf.gather(lengths, order)
        )
        found = self._generator.generate(token_ids, cache)
        places = tf.math.invert_permutation(order)
        return {
            name: tf.gather(values, places) for name, values in found.items()
        }

    def answer(self, questions):
        """Answers questions.

        Args:
            questions: String tensor `(batch,)`.

        Returns:
            Dict of tensors `(batch,)`: the strings `answers` and `status`, and
            `log_probs`, float32.
        """
        best = self.answer_n_best(questions)
        return {
            "answers": best["answers"][:, 0],
            "log_probs": best["log_probs"][:, 0],
            "status": best["status"],
        }

    # One graph, which `answer` calls: with its loop it is most of an export.
    @tf.function(
        input_signature=[tf.TensorSpec((None,), tf.string, name="questions")],
        autograph=False,
    )
    def answer_n_best(self, questions):
        """Gives the best answers to every question, the best first.

        Args:
            questions: String tensor `(batch,)`.

        Returns:
            Dict of `answers`, strings, `log_probs` and `scores`, float32, all
            `(batch, num_sequences)`; and of `status`, strings `(batch,)`.
        """
        token_ids, status = self.tokenizer.encode_questions(
            questions, self._max_length
        )
        with self._weights:
            found = self._search(token_ids)
        answers = self.tokenizer.decode(found["token_ids"])
        is_ok = tf.equal(status, OK)[:, tf.newaxis]
        return {
            "answers": tf.where(is_ok, answers, ""),
            "log_probs": tf.where(is_ok, found["log_probs"], 0.0),
            "scores": tf.where(is_ok, found["scores"], 0.0),
            "status": status,
        }
