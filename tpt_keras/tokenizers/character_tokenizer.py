import collections

import numpy as np

from tpt_keras.answer import EMPTY
from tpt_keras.answer import INVALID_UTF8
from tpt_keras.answer import OK
from tpt_keras.answer import TOO_LONG
from tpt_keras.answer import UNKNOWN_CHARACTER
from tpt_keras.answer import explain
from tpt_keras.errors import UsageError

PAD = "<pad>"
START = "<start>"
END = "<end>"
UNKNOWN = "<unknown>"
SPECIAL_SYMBOLS = (PAD, START, END, UNKNOWN)

# The Mathematics Dataset's characters, and the paper's 72 symbols; a symbol's
# place is its token id.
CHARACTERS = (
    " !'()*+,-./0123456789:<=>?ACDEFGHILMPRSTWabcdefghijklmnopqrstuvwxyz{}"
)
MATHEMATICS_VOCABULARY = (PAD, START, END, *CHARACTERS)

# The dataset's own limits, in characters.
MAX_QUESTION_LENGTH = 160
MAX_ANSWER_LENGTH = 30


class CharacterTokenizer:
    """Converts strings to token ids and back, one character a token.

    Questions and answers are both framed by the start and the end symbol, as
    in the paper (figure 2).

    Args:
        vocabulary: Sequence of symbols, each at its token id: the special
            symbols `<pad>`, `<start>` and `<end>`, and single characters of
            Unicode. Defaults to the Mathematics Dataset's 72 symbols.

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
        self.id_of_character = {
            symbol: token_id
            for symbol, token_id in self.token_ids.items()
            if symbol not in SPECIAL_SYMBOLS
        }
        codes = list(map(ord, self.id_of_character))
        # Indexed by code point. The last row stands for all higher ones.
        self._token_of_code = np.full(max(codes, default=0) + 2, -1, "int32")
        self._token_of_code[codes] = list(self.id_of_character.values())

    def encode(self, text):
        """Encodes a string, with the start and the end symbol.

        Args:
            text: A string.

        Returns:
            List of integers.

        Raises:
            UsageError: If a character is not in the vocabulary.
        """
        return self.encode_batch([text])[0].tolist()

    def encode_batch(self, texts):
        """Encodes strings as one padded batch.

        Args:
            texts: Sequence of strings.

        Returns:
            int32 array `(batch, longest string + 2)`.

        Raises:
            UsageError: If a character is not in the vocabulary.
        """
        lengths = np.fromiter(map(len, texts), "int32")
        return self.frame(self.encode_flat(texts), lengths)

    def encode_flat(self, texts):
        """Encodes strings into one int32 array, without start and end."""
        # Lone surrogates pass, and are refused as unknown characters.
        codes = "".join(texts).encode("utf-32-le", "surrogatepass")
        codes = np.frombuffer(codes, "<u4")
        above_all = len(self._token_of_code) - 1
        ids = self._token_of_code[np.minimum(codes, above_all)]
        if ids.size and ids.min() < 0:
            self._refuse_unknown(texts)
        return ids

    def frame(self, token_ids, lengths):
        """Adds start and end symbols to sequences and pads them.

        Args:
            token_ids: Integer array of all sequences, one after another.
            lengths: Integer array `(batch,)` of their lengths.

        Returns:
            int32 array `(batch, longest sequence + 2)`.
        """
        shape = (len(lengths), lengths.max(initial=0) + 2)
        batch = np.full(shape, self.pad_id, "int32")
        is_token = np.arange(shape[1] - 1) < lengths[:, None]
        batch[:, 0] = self.start_id
        batch[:, 1:][is_token] = token_ids
        batch[np.arange(len(lengths)), lengths + 1] = self.end_id
        return batch

    def encode_questions(self, questions, max_length=MAX_QUESTION_LENGTH):
        """Encodes questions as one padded batch.

        Args:
            questions: Non-empty sequence of strings.
            max_length: Most characters of a question.

        Returns:
            int32 array `(batch, longest question + 2)`.

        Raises:
            UsageError: If a question cannot be encoded.
        """
        questions = list(questions)
        for question in questions:
            if not isinstance(question, str):
                raise UsageError(
                    f"A question must be a string. Received: {question!r}."
                )
            status = self.question_status(question, max_length)
            if status != OK:
                reason = explain(question, status, self.vocabulary, max_length)
                raise UsageError(f"The question {question[:40]!r} {reason}.")
        return self.encode_batch(questions)

    def question_status(self, question, max_length=MAX_QUESTION_LENGTH):
        """Returns the `status` of an `Answer`: `"OK"` if it can be encoded."""
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

    def decode(self, token_ids):
        """Decodes token ids up to the end symbol.

        Args:
            token_ids: Sequence of integers.

        Returns:
            The characters, without special symbols. An id without a symbol
            becomes U+FFFD.
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

    def _refuse_unknown(self, texts):
        for text in texts:
            for position, character in enumerate(text):
                if character not in self.id_of_character:
                    reason = explain(text, UNKNOWN_CHARACTER, self.vocabulary)
                    raise UsageError(
                        f"The text {text[:40]!r} {reason} "
                        f"(position {position})."
                    )


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
    # UTF-8 has no lone surrogates.
    return not "\ud800" <= symbol <= "\udfff"
