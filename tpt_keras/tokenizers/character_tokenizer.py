import collections

import numpy as np

from tpt_keras.errors import UsageError
from tpt_keras.tokenizers.question_status import EMPTY
from tpt_keras.tokenizers.question_status import INVALID_UTF8
from tpt_keras.tokenizers.question_status import OK
from tpt_keras.tokenizers.question_status import TOO_LONG
from tpt_keras.tokenizers.question_status import UNKNOWN_CHARACTER
from tpt_keras.tokenizers.vocabulary import END
from tpt_keras.tokenizers.vocabulary import MATHEMATICS_VOCABULARY
from tpt_keras.tokenizers.vocabulary import MAX_QUESTION_LENGTH
from tpt_keras.tokenizers.vocabulary import PAD
from tpt_keras.tokenizers.vocabulary import SPECIAL_SYMBOLS
from tpt_keras.tokenizers.vocabulary import START


class CharacterTokenizer:
    """Strings to token ids and back, one character a token.

    Questions and answers are both framed by the start and the end symbol, as
    in the paper (figure 2).

    Args:
        vocabulary: Sequence of symbols, each at its token id: the special
            symbols `<pad>`, `<start>` and `<end>`, and single characters, any
            of Unicode's. Defaults to the Mathematics Dataset's 72 symbols.

    Raises:
        UsageError: If the vocabulary lacks a special symbol, or holds a symbol
            twice or one that is no single character.

    Example:

    >>> tokenizer = CharacterTokenizer()
    >>> tokenizer.encode("1+1")
    [1, 15, 9, 15, 2]
    >>> tokenizer.decode([15, 9, 15, 2, 0, 0])
    '1+1'
    """

    def __init__(self, vocabulary=MATHEMATICS_VOCABULARY):
        self.vocabulary = tuple(vocabulary)
        _check(self.vocabulary)
        self.token_ids = {
            symbol: token_id for token_id, symbol in enumerate(self.vocabulary)
        }
        self.pad_id = self.token_ids[PAD]
        self.start_id = self.token_ids[START]
        self.end_id = self.token_ids[END]
        ids = {
            ord(symbol): token_id
            for symbol, token_id in self.token_ids.items()
            if symbol not in SPECIAL_SYMBOLS
        }
        # Of every code point up to the highest that is known; the last row
        # stands for all above.
        self._token_of_code = np.full(max(ids, default=0) + 2, -1, "int32")
        self._token_of_code[list(ids)] = list(ids.values())

    def encode(self, text):
        """Token ids of a string, start and end symbol included.

        Args:
            text: A string.

        Returns:
            List of integers.

        Raises:
            UsageError: If a character is not in the vocabulary.
        """
        ids = [self.start_id]
        for position, character in enumerate(text):
            if character not in self.token_ids:
                known = "".join(
                    s for s in self.vocabulary if s not in SPECIAL_SYMBOLS
                )
                raise UsageError(
                    f"The character {character!r} (position {position} of "
                    f"{text!r}) is not in the vocabulary. Known characters: "
                    f"{known!r}."
                )
            ids.append(self.token_ids[character])
        ids.append(self.end_id)
        return ids

    def encode_questions(self, questions, max_length=MAX_QUESTION_LENGTH):
        """Questions as one padded batch.

        Args:
            questions: Non-empty sequence of strings.
            max_length: Most characters that a question may have.

        Returns:
            int32 array `(batch, longest question + 2)`.

        Raises:
            UsageError: If a question is empty or too long, or holds a
                character that is not in the vocabulary.
        """
        questions = list(questions)
        for question in questions:
            if not isinstance(question, str):
                raise UsageError(
                    f"A question must be a string. Received: {question!r}."
                )
            if not question:
                raise UsageError("A question is empty. Ask something.")
            if len(question) > max_length:
                raise UsageError(
                    f"A question has {len(question)} characters: "
                    f"{question[:40]!r}... Shorten it to at most {max_length}."
                )
        return self.encode_batch(questions)

    def question_status(self, question, max_length=MAX_QUESTION_LENGTH):
        """Whether a question can be encoded, and if not, why not.

        As `GraphTokenizer` tells it.

        Args:
            question: A string.
            max_length: Most characters that it may have.

        Returns:
            One of the names in `question_status`.
        """
        try:
            question.encode()
        except UnicodeEncodeError:
            return INVALID_UTF8
        if not question:
            return EMPTY
        if len(question) > max_length:
            return TOO_LONG
        if not self.token_ids.keys() >= set(question):
            return UNKNOWN_CHARACTER
        return OK

    def encode_batch(self, texts):
        """Strings as one padded batch, many times as fast as one by one.

        Args:
            texts: Sequence of strings.

        Returns:
            int32 array `(batch, longest string + 2)`.

        Raises:
            UsageError: If a character is not in the vocabulary.
        """
        lengths = np.fromiter(map(len, texts), "int32")
        # Halves of a UTF-16 pair pass, to be named as unknown characters.
        codes = "".join(texts).encode("utf-32-le", "surrogatepass")
        codes = np.frombuffer(codes, "<u4")
        above_all = len(self._token_of_code) - 1
        ids = self._token_of_code[np.minimum(codes, above_all)]
        if ids.size and ids.min() < 0:
            # Slow, but says which character it is.
            for text in texts:
                self.encode(text)
        shape = (len(texts), lengths.max(initial=0) + 2)
        batch = np.full(shape, self.pad_id, "int32")
        is_character = np.arange(shape[1] - 1) < lengths[:, None]
        batch[:, 0] = self.start_id
        batch[:, 1:][is_character] = ids
        batch[np.arange(len(texts)), lengths + 1] = self.end_id
        return batch

    def decode(self, token_ids):
        """The string of token ids up to the end symbol.

        Args:
            token_ids: Sequence of integers.

        Returns:
            The characters, without any special symbol. An id that the
            vocabulary has no character for becomes U+FFFD.
        """
        characters = []
        for token_id in token_ids:
            if token_id == self.end_id:
                break
            if token_id >= len(self.vocabulary):
                characters.append("\N{REPLACEMENT CHARACTER}")
            elif self.vocabulary[token_id] not in SPECIAL_SYMBOLS:
                characters.append(self.vocabulary[token_id])
        return "".join(characters)


def _check(vocabulary):
    for symbol in vocabulary:
        if symbol not in SPECIAL_SYMBOLS and not _is_character(symbol):
            raise UsageError(
                f"The vocabulary holds {symbol!r}. A symbol must be one "
                f"character or one of {', '.join(SPECIAL_SYMBOLS)}."
            )
    counts = collections.Counter(vocabulary)
    for symbol in (PAD, START, END):
        if not counts[symbol]:
            raise UsageError(f"The vocabulary lacks the symbol {symbol}.")
    symbol, count = counts.most_common(1)[0]
    if count > 1:
        raise UsageError(f"The vocabulary holds the symbol {symbol!r} twice.")


def _is_character(symbol):
    if not isinstance(symbol, str) or len(symbol) != 1:
        return False
    # Halves of a UTF-16 pair are none: no UTF-8 text can hold them.
    return not "\ud800" <= symbol <= "\udfff"
