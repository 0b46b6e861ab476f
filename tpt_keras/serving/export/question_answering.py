import tensorflow as tf

from tpt_keras.decoding import LeavingRows
from tpt_keras.serving.export.frozen_weights import FrozenWeights
from tpt_keras.serving.export.length_groups import encode_in_groups
from tpt_keras.tokenizers.graph_tokenizer import GraphTokenizer
from tpt_keras.tokenizers.question_status import OK


class QuestionAnswering(tf.Module):
    """A model from strings to strings, inside TensorFlow's graph.

    A question that cannot be answered gets an empty answer and a status that
    says why; it never fails the others, which may be strangers' questions that
    TF Serving put into the same batch.

    Args:
        model: A `SequenceToSequence`.
        max_answer_length: Longest answer given, in characters. Defaults to the
            model's.
        beam_width: Number of answers to follow; `1` is greedy search.
        length_penalty: How much longer answers are preferred, see
            `beam_search`.
        weights: Scope that gives the model's weights. Defaults to
            `FrozenWeights` of it.
    """

    def __init__(
        self,
        model,
        max_answer_length=None,
        beam_width=1,
        length_penalty=0.0,
        weights=None,
    ):
        super().__init__(name="question_answering")
        if max_answer_length is None:
            max_answer_length = model.config.max_answer_length
        self._model = model
        self._options = {
            # A token is a character; an answer of that length needs no end.
            "max_length": max_answer_length,
            "beam_width": beam_width,
            "length_penalty": length_penalty,
        }
        self.tokenizer = GraphTokenizer(
            model.tokenizer, model.config.vocabulary_size
        )
        self._max_length = model.config.max_question_length
        self._weights = weights or FrozenWeights(model)

    def _search(self, token_ids):
        """The best answers, found without computing what nobody reads."""
        lengths = tf.math.count_nonzero(
            self._model.padding_mask(token_ids), axis=-1, dtype=tf.int32
        )
        order = tf.argsort(lengths, stable=True)
        cache = encode_in_groups(
            # Room for one token: the loop makes more.
            lambda token_ids: self._model.init_cache(token_ids, max_length=1),
            tf.gather(token_ids, order),
            tf.gather(lengths, order),
        )
        found = self._model.search_from(
            cache,
            tf.size(order),
            **self._options,
            while_loop=LeavingRows(
                self._model.grow_cache, self._options["beam_width"]
            ),
        )
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
            Dict of the strings `answers`, `(batch, beam_width)`; of float32
            `log_probs` and `scores`, `(batch, beam_width)`; and of the strings
            `status`, `(batch,)`.
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
