import tensorflow as tf

from tpt_keras.answer import EMPTY
from tpt_keras.answer import INVALID_UTF8
from tpt_keras.answer import OK
from tpt_keras.answer import TOO_LONG
from tpt_keras.tokenizers.character_tokenizer import ALL_BLANKS
from tpt_keras.tokenizers.character_tokenizer import OF_WORDS
from tpt_keras.tokenizers.character_tokenizer import SPECIAL_SYMBOLS
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer

_UNKNOWN_ID = -1


class GraphTokenizer:
    """A `CharacterTokenizer` in TensorFlow's graph, for exported models.

    It raises no errors. Every question has a status instead, as an `Answer`.

    Args:
        tokenizer: The `CharacterTokenizer`.
        vocabulary_size: Number of token ids, including those without a symbol.
    """

    def __init__(
        self, tokenizer: CharacterTokenizer, vocabulary_size: int
    ) -> None:
        self._tokenizer = tokenizer
        # Special symbols are encoded from nothing, and decoded to nothing.
        token_ids = {
            symbol: token_id
            for symbol, token_id in tokenizer.token_ids.items()
            if symbol not in SPECIAL_SYMBOLS
        }
        pairs = tf.lookup.KeyValueTensorInitializer(
            list(token_ids), list(token_ids.values()), tf.string, tf.int32
        )
        self.token_of_symbol = tf.lookup.StaticHashTable(pairs, _UNKNOWN_ID)
        symbols = [x if x in token_ids else "" for x in tokenizer.vocabulary]
        missing = vocabulary_size - len(symbols)
        symbols += missing * ["\N{REPLACEMENT CHARACTER}"]
        # A separator stands before every symbol of an answer but the first.
        self._symbols = tf.constant(
            [symbol and tokenizer.separator + symbol for symbol in symbols]
        )

    def encode(
        self, texts: tf.Tensor, max_length: int, questions: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Encodes answers or questions `(batch,)` as one padded batch.

        Questions may not be empty. Returns token ids, int32 `(batch, longest
        sequence + 2)`, and statuses, strings `(batch,)`. A text that cannot be
        encoded becomes an empty one.
        """
        valid = tf.strings.unicode_transcode(
            texts, "UTF-8", "UTF-8", errors="ignore"
        )
        is_valid = tf.equal(texts, valid)
        # Replaced before anything is computed from them.
        texts = tf.where(is_valid, texts, "")
        is_short = self._lengths(texts) <= max_length
        is_blank = tf.equal(self._lengths(tf.strings.strip(texts)), 0)
        pieces = self._pieces(tf.where(is_short, texts, ""))
        ids = self.token_of_symbol[pieces]
        is_known = tf.reduce_all(ids != _UNKNOWN_ID, axis=-1)
        status = tf.fill(tf.shape(texts), OK)
        for is_fine, reason in (
            (is_known, self._tokenizer.unknown),
            (~is_blank | (not questions), EMPTY),
            (is_short, TOO_LONG),
            (is_valid, INVALID_UTF8),
        ):
            status = tf.where(is_fine, status, reason)
        if questions and self._tokenizer.words:
            ids = self._join_words(pieces, ids)
        ids = tf.ragged.boolean_mask(ids, ids != _UNKNOWN_ID)
        start = tf.fill([tf.size(texts), 1], self._tokenizer.start_id)
        end = tf.fill([tf.size(texts), 1], self._tokenizer.end_id)
        ids = tf.concat([start, ids, end], axis=1)
        ids = ids.to_tensor(self._tokenizer.pad_id)
        return ids if questions else self._order_digits(ids), status

    def _pieces(self, texts):
        """As `CharacterTokenizer.pieces`, of `(batch,)`; ragged."""
        if not self._tokenizer.separator:
            return tf.strings.unicode_split(texts, "UTF-8")
        return tf.strings.split(
            tf.strings.regex_replace(texts, ALL_BLANKS, " ")
        )

    def _lengths(self, texts):
        if not self._tokenizer.separator:
            return tf.strings.length(texts, unit="UTF8_CHAR")
        return self._pieces(texts).row_lengths()

    def _join_words(self, characters, ids):
        """Does what `CharacterTokenizer.join_words` does."""
        rows, characters = characters.value_rowids(), characters.values
        is_letter = tf.strings.regex_full_match(characters, OF_WORDS)
        goes_on = is_letter[1:] & is_letter[:-1] & (rows[1:] == rows[:-1])
        goes_on = tf.concat([is_letter[:1] & False, goes_on], axis=0)
        pieces = tf.cumsum(tf.cast(~goes_on, tf.int32)) - 1
        texts = tf.strings.unsorted_segment_join(
            characters, pieces, tf.size(pieces)
        )
        token_ids = tf.gather(self.token_of_symbol[texts], pieces)
        is_word = token_ids != _UNKNOWN_ID
        token_ids = tf.where(goes_on, _UNKNOWN_ID, token_ids)
        return ids.with_values(tf.where(is_word, token_ids, ids.values))

    def decode(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Decodes answers `(..., length)`, padded after their end symbols."""
        texts = tf.strings.reduce_join(
            tf.gather(self._symbols, self._order_digits(token_ids)), axis=-1
        )
        return tf.strings.strip(texts) if self._tokenizer.separator else texts

    def _order_digits(self, token_ids):
        """As `CharacterTokenizer.order_digits`, of `(..., length)`."""
        if self._tokenizer.answer_order == "as_written":
            return token_ids
        flat = tf.reshape(token_ids, (-1,))
        indices = tf.range(tf.size(flat))
        is_first = indices % tf.shape(token_ids)[-1] == 0
        is_digit = tf.reduce_any(
            flat[:, tf.newaxis] == self._tokenizer.reversed_ids, axis=-1
        )
        before = tf.roll(flat, 1, axis=0)
        is_inside = is_digit & tf.roll(is_digit, 1, axis=0) & ~is_first
        pieces = tf.cumsum(tf.cast(~is_inside, tf.int32)) - 1
        firsts = tf.gather(tf.math.segment_min(indices, pieces), pieces)
        lasts = tf.gather(tf.math.segment_max(indices, pieces), pieces)
        is_after_point = ~is_first & (before == self._tokenizer.point_id)
        is_after_point = tf.gather(is_after_point, firsts)
        sources = tf.where(is_after_point, indices, firsts + lasts - indices)
        return tf.reshape(tf.gather(flat, sources), tf.shape(token_ids))
