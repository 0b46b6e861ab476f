import functools

import tensorflow as tf

from tpt_keras.data_generators.vocabulary import SPECIAL_SYMBOLS

OK = "OK"
EMPTY = "EMPTY"
TOO_LONG = "TOO_LONG"
UNKNOWN_CHARACTER = "UNKNOWN_CHARACTER"
INVALID_UTF8 = "INVALID_UTF8"


class QuestionAnswering(tf.Module):
    """A model from strings to strings, inside TensorFlow's graph.

    A question that cannot be answered gets an empty answer and a status that
    says why; it never fails the others, which may be strangers' questions that
    TF Serving put into the same batch.

    Args:
        model: A `Transformer`.
        max_answer_length: Longest answer given, in characters. Defaults to the
            model's.
        beam_width: Number of answers to follow; `1` is greedy search.
        length_penalty: How much longer answers are preferred, see
            `beam_search`.
    """

    def __init__(
        self, model, max_answer_length=None, beam_width=1, length_penalty=0.0
    ):
        super().__init__(name="question_answering")
        if max_answer_length is None:
            max_answer_length = model.config.max_answer_length
        self._search = functools.partial(
            model.search,
            # A token is a character; an answer of that length needs no end.
            max_length=max_answer_length,
            beam_width=beam_width,
            length_penalty=length_penalty,
        )
        self._tokenizer = model.tokenizer
        self._max_length = model.config.max_question_length
        characters = {
            symbol: token_id
            for symbol, token_id in model.tokenizer.token_ids.items()
            if symbol not in SPECIAL_SYMBOLS
        }
        unknown_id = -1
        self.token_of_character = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(list(characters), tf.string),
                tf.constant(list(characters.values()), tf.int32),
            ),
            default_value=unknown_id,
        )
        # As the tokenizer decodes: special symbols are nothing.
        symbols = [
            symbol if symbol in characters else ""
            for symbol in model.tokenizer.vocabulary
        ]
        symbols += ["\N{REPLACEMENT CHARACTER}"] * (
            model.config.vocabulary_size - len(symbols)
        )
        self._symbols = tf.constant(symbols)

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

    def answer_n_best(self, questions):
        """Gives the best answers to every question, the best first.

        Args:
            questions: String tensor `(batch,)`.

        Returns:
            Dict of the strings `answers`, `(batch, beam_width)`; of float32
            `log_probs` and `scores`, `(batch, beam_width)`; and of the strings
            `status`, `(batch,)`.
        """
        token_ids, status = self._tokenize(questions)
        found = self._search(token_ids)
        answers = tf.strings.reduce_join(
            tf.gather(self._symbols, found["token_ids"]), axis=-1
        )
        is_ok = tf.equal(status, OK)[:, tf.newaxis]
        return {
            "answers": tf.where(is_ok, answers, ""),
            "log_probs": tf.where(is_ok, found["log_probs"], 0.0),
            "scores": tf.where(is_ok, found["scores"], 0.0),
            "status": status,
        }

    def _tokenize(self, questions):
        """Token ids `(batch, source_length)` and status `(batch,)`."""
        is_valid = tf.equal(
            questions,
            tf.strings.unicode_transcode(
                questions, "UTF-8", "UTF-8", errors="ignore"
            ),
        )
        # What cannot be answered is replaced before anything is computed.
        lengths = tf.strings.length(
            tf.where(is_valid, questions, ""), unit="UTF8_CHAR"
        )
        is_short = lengths <= self._max_length
        characters = tf.strings.unicode_split(
            tf.where(is_valid & is_short, questions, ""), "UTF-8"
        )
        ids = self.token_of_character[characters]
        is_known = tf.reduce_all(ids >= 0, axis=-1)
        status = tf.fill(tf.shape(questions), OK)
        for is_fine, reason in (
            (is_known, UNKNOWN_CHARACTER),
            (lengths > 0, EMPTY),
            (is_short, TOO_LONG),
            (is_valid, INVALID_UTF8),
        ):
            status = tf.where(is_fine, status, reason)
        ids = tf.ragged.boolean_mask(ids, ids >= 0)
        frame = tf.ones_like(questions, tf.int32)[:, tf.newaxis]
        ids = tf.concat(
            [
                frame * self._tokenizer.start_id,
                ids,
                frame * self._tokenizer.end_id,
            ],
            axis=1,
        )
        return ids.to_tensor(self._tokenizer.pad_id), status
