import collections
import itertools
import re
from collections.abc import Iterable
from collections.abc import Sequence

import numpy as np

from tpt_keras.answer import EMPTY
from tpt_keras.answer import INVALID_UTF8
from tpt_keras.answer import OK
from tpt_keras.answer import TOO_LONG
from tpt_keras.answer import UNKNOWN_CHARACTER
from tpt_keras.answer import UNKNOWN_WORD
from tpt_keras.answer import WORDS
from tpt_keras.answer import explain
from tpt_keras.answer import list_of_texts
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.tokenizers.question_words import QUESTION_WORDS

PAD = "<pad>"
START = "<start>"
END = "<end>"
UNKNOWN = "<unknown>"
SPECIAL_SYMBOLS = (PAD, START, END, UNKNOWN, WORDS)
TOKENS = ("characters", "words")

# The Mathematics Dataset's characters, and the paper's 72 symbols; a symbol's
# position is its token id.
CHARACTERS = (
    " !'()*+,-./0123456789:<=>?ACDEFGHILMPRSTWabcdefghijklmnopqrstuvwxyz{}"
)
MATHEMATICS_VOCABULARY = (PAD, START, END, *CHARACTERS)
# The names under which a configuration takes a vocabulary.
VOCABULARIES = {
    "mathematics": MATHEMATICS_VOCABULARY,
    "mathematics_words": (*MATHEMATICS_VOCABULARY, *QUESTION_WORDS),
}

# The dataset's own limits, in characters.
MAX_QUESTION_LENGTH = 160
MAX_ANSWER_LENGTH = 30

ANSWER_ORDERS = ("as_written", "units_first", "minutes_first")
DIGITS = tuple("0123456789")

# What TensorFlow strips, too. A question of nothing else is empty.
BLANKS = " \t\n\v\f\r"
# All that `str.split` splits at, for TensorFlow, whose own split knows only
# blanks of ASCII.
ALL_BLANKS = (
    "[\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"
)
# A word among characters is a whole run of such characters.
OF_WORDS = "[A-Za-z0-9]"
_WORD = re.compile("[A-Za-z]{2,}")
_SURROGATES = re.compile("[\ud800-\udfff]")


class CharacterTokenizer:
    """Converts strings to token ids and back, one character or word a token.

    Tokens are words if the vocabulary has the symbol `<words>`: texts are split
    at blanks, as by `str.split`, answers are joined by one blank, and lengths
    are numbers of words. Otherwise they are characters.

    Questions and answers are framed by the start and the end symbol, as in the
    paper (figure 2). Among characters, a question's run of letters and digits
    that is a word of the vocabulary is one token, too; answers are characters.
    With `answer_order="units_first"`, the digits of an answer before a decimal
    point are reversed, because a sum is computed from its units. With
    `"minutes_first"`, a time of day is reversed, too:

        -1234.56  ->  -4321.56
        9:24 PM   ->  42:9 PM

    Args:
        vocabulary: Sequence of symbols, each at its token id: the special
            symbols `<pad>`, `<start>` and `<end>`, characters, and words of
            two or more of its letters from A to Z and a to z; with `<words>`,
            any words. Defaults to the Mathematics Dataset's 72 symbols.
        answer_order: `"as_written"` (default), `"units_first"` or
            `"minutes_first"`. Of words, it is about those of one digit.

    Attributes:
        unit: `"characters"` or `"words"`.
        separator: What stands between tokens in a text: nothing, or a blank.
        unknown: The `status` of a text with an unknown one.

    Raises:
        UsageError: If the vocabulary lacks a special symbol or a letter of a
            word, or holds a symbol twice or one that is neither a character
            nor a word.

    Example:

    >>> tokenizer = CharacterTokenizer()
    >>> tokenizer.encode("1+1")
    [1, 15, 9, 15, 2]
    >>> tokenizer.decode([15, 9, 15, 2, 0, 0])
    '1+1'
    >>> tokenizer = CharacterTokenizer(VOCABULARIES["mathematics_words"])
    >>> tokenizer.split("What is 1+1?")
    ['What', ' ', 'is', ' ', '1', '+', '1', '?']
    >>> words = ("<pad>", "<start>", "<end>", "<words>", "jump", "twice")
    >>> CharacterTokenizer(words).encode("jump  twice")
    [1, 4, 5, 2]
    >>> tokenizer = CharacterTokenizer(answer_order="units_first")
    >>> tokenizer.encode("12.34") == CharacterTokenizer().encode("21.34")
    True
    """

    def __init__(
        self,
        vocabulary: Sequence[str] = MATHEMATICS_VOCABULARY,
        answer_order: str = "as_written",
    ) -> None:
        check_choice("answer_order", answer_order, ANSWER_ORDERS)
        self.vocabulary = tuple(vocabulary)
        self.answer_order = answer_order
        has_words = WORDS in self.vocabulary
        self.unit = "words" if has_words else "characters"
        self.separator = " " if has_words else ""
        self.unknown = UNKNOWN_WORD if has_words else UNKNOWN_CHARACTER
        _check(self.vocabulary)
        self.token_ids = {x: index for index, x in enumerate(self.vocabulary)}
        self.pad_id = self.token_ids[PAD]
        self.start_id = self.token_ids[START]
        self.end_id = self.token_ids[END]
        # Those that answers are made of.
        self.id_of_symbol = {
            symbol: token_id
            for symbol, token_id in self.token_ids.items()
            if symbol not in SPECIAL_SYMBOLS and (has_words or len(symbol) == 1)
        }
        self.digit_ids = [
            self.token_ids[digit] for digit in DIGITS if digit in self.token_ids
        ]
        self.point_id = self.token_ids.get(".", -1)
        # Runs of these symbols are reversed in answers.
        self.reversed_ids = list(self.digit_ids)
        if answer_order == "minutes_first" and ":" in self.token_ids:
            self.reversed_ids.append(self.token_ids[":"])
        self.words = []
        if has_words:
            return
        self.words = sorted(filter(_WORD.fullmatch, self.vocabulary))
        codes = list(map(ord, self.id_of_symbol))
        # Indexed by code point. The last stands for all higher ones.
        self._token_of_code = np.full(max(codes, default=0) + 2, -1, "int32")
        self._token_of_code[codes] = list(self.id_of_symbol.values())
        # The letters and digits by token id; zero for all other symbols.
        is_of_words = re.compile(OF_WORDS).fullmatch
        codes = [ord(x) if is_of_words(x) else 0 for x in self.vocabulary]
        self._code_of_token = np.array(codes, "uint8")
        self._words = np.array(self.words, "S")
        ids = [self.token_ids[word] for word in self.words]
        self._ids_of_words = np.array(ids, "int32")

    def pieces(self, text: str) -> Sequence[str]:
        """Splits a text into what answers are made of, known or not."""
        return text.split() if self.separator else text

    def encode(self, text: str) -> list[int]:
        """Encodes an answer to a list; see `encode_batch`."""
        return self.encode_batch([text])[0].tolist()

    def encode_batch(
        self, texts: Sequence[str], questions: bool = False
    ) -> np.ndarray:
        """Encodes answers or questions as one padded batch.

        Args:
            texts: Sequence of strings.
            questions: Whether they are questions, whose words are one token.
                Answers are in the `answer_order`.

        Returns:
            int32 array `(batch, longest sequence + 2)`.

        Raises:
            UsageError: If a character or a word is not in the vocabulary.
        """
        token_ids = self.encode_flat(texts)
        lengths = np.array([len(self.pieces(text)) for text in texts], "int32")
        if questions:
            token_ids, lengths = self.join_words(token_ids, lengths)
        else:
            token_ids = self.order_digits(token_ids, lengths)
        return self.frame(token_ids, lengths)

    def split(self, text: str, question: bool = True) -> list[str]:
        """Splits a question or an answer into the model's symbols."""
        _, *token_ids, _ = self.encode_batch([text], questions=question)[0]
        return [self.vocabulary[token_id] for token_id in token_ids]

    def encode_flat(self, texts: Sequence[str]) -> np.ndarray:
        """Encodes strings into one int32 array, without start and end."""
        if self.separator:
            words = self.separator.join(texts).split()
            found = [self.id_of_symbol.get(word, -1) for word in words]
            ids = np.array(found, "int32")
        else:
            ids = self._encode_characters(texts)
        if ids.size and ids.min() < 0:
            self._refuse_unknown(texts)
        return ids

    def _encode_characters(self, texts):
        # Lone surrogates pass, and are refused as unknown characters.
        content = "".join(texts).encode("utf-32-le", "surrogatepass")
        codes = np.frombuffer(content, "<u4")
        above_all = len(self._token_of_code) - 1
        return self._token_of_code[np.minimum(codes, above_all)]

    def join_words(
        self, token_ids: np.ndarray, lengths: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Replaces the characters of every word by the word's own token.

        Takes and returns the token ids of all sequences, one after another, and
        their lengths `(batch,)`.
        """
        if not self.words or not len(token_ids):
            return token_ids, lengths
        rows = np.repeat(np.arange(len(lengths)), lengths)
        codes = self._code_of_token[token_ids]
        # A piece is a run of characters of words, or any other character.
        is_start = np.ones(len(codes), bool)
        is_start[1:] = (
            (codes[1:] == 0) | (codes[:-1] == 0) | (rows[1:] != rows[:-1])
        )
        starts = np.flatnonzero(is_start)
        sizes = np.diff(starts, append=len(codes))
        offsets = np.arange(self._words.itemsize)
        pieces = np.flatnonzero((sizes > 1) & (sizes <= len(offsets)))
        # The pieces as byte strings, which end with their first zero.
        texts = codes[
            np.minimum(starts[pieces, None] + offsets, len(codes) - 1)
        ] * (offsets < sizes[pieces, None])
        texts = texts.view(self._words.dtype)[:, 0]
        found = np.searchsorted(self._words[:-1], texts)
        is_word = self._words[found] == texts
        pieces = pieces[is_word]
        token_ids = np.array(token_ids)
        token_ids[starts[pieces]] = self._ids_of_words[found[is_word]]
        of_words = np.zeros(len(starts), bool)
        of_words[pieces] = True
        is_kept = is_start | ~np.repeat(of_words, sizes)
        kept = np.bincount(rows, is_kept, len(lengths)).astype(lengths.dtype)
        return token_ids[is_kept], kept

    def order_digits(
        self, token_ids: np.ndarray, lengths: np.ndarray
    ) -> np.ndarray:
        """Puts the digits of answers into the `answer_order`, or back.

        For the arguments see `join_words`. Returns the token ids.
        """
        if self.answer_order == "as_written" or not len(token_ids):
            return token_ids
        rows = np.repeat(np.arange(len(lengths)), lengths)
        is_digit = np.isin(token_ids, self.reversed_ids)
        # A piece is a run of digits, or any other symbol.
        is_start = np.ones(len(rows), bool)
        is_start[1:] = ~(is_digit[1:] & is_digit[:-1]) | (rows[1:] != rows[:-1])
        starts = np.flatnonzero(is_start)
        sizes = np.diff(starts, append=len(rows))
        is_after_point = token_ids[starts - 1] == self.point_id
        is_after_point &= starts > 0
        is_after_point &= rows[starts] == rows[starts - 1]
        # The first and the last of a piece are exchanged, and so on.
        sums = 2 * starts + sizes - 1
        sources = np.repeat(sums, sizes) - np.arange(len(rows))
        stays = np.repeat(is_after_point, sizes)
        return token_ids[np.where(stays, np.arange(len(rows)), sources)]

    def frame(self, token_ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Adds start and end symbols to sequences and pads them.

        For the arguments see `join_words`. Returns an int32 array `(batch,
        longest sequence + 2)`.
        """
        shape = (len(lengths), lengths.max(initial=0) + 2)
        batch = np.full(shape, self.pad_id, "int32")
        is_token = np.arange(shape[1] - 1) < lengths[:, None]
        batch[:, 0] = self.start_id
        batch[:, 1:][is_token] = token_ids
        batch[np.arange(len(lengths)), lengths + 1] = self.end_id
        return batch

    def encode_questions(
        self, questions: Iterable[str], max_length: int = MAX_QUESTION_LENGTH
    ) -> np.ndarray:
        """Encodes questions as one padded batch.

        Args:
            questions: Non-empty sequence of strings.
            max_length: Most characters of a question.

        Returns:
            int32 array `(batch, longest question + 2)`.

        Raises:
            UsageError: If a question cannot be encoded.
        """
        questions = list_of_texts(questions)
        for question in questions:
            status = self.question_status(question, max_length)
            if status != OK:
                reason = explain(question, status, self.vocabulary, max_length)
                raise UsageError(f"The question {question[:40]!r} {reason}.")
        return self.encode_batch(questions, questions=True)

    def question_status(
        self, question: str, max_length: int = MAX_QUESTION_LENGTH
    ) -> str:
        """Returns the `status` of an `Answer`: `"OK"` if it can be encoded."""
        status = self.answer_status(question, max_length)
        is_known = status not in (INVALID_UTF8, TOO_LONG)
        is_blank = not self.pieces(question.strip(BLANKS))
        return EMPTY if is_known and is_blank else status

    def answer_status(self, answer: str, max_length: int) -> str:
        """Returns `"OK"` if an answer can be encoded; it may be empty."""
        try:
            answer.encode()
        except UnicodeEncodeError:
            return INVALID_UTF8
        pieces = self.pieces(answer)
        if len(pieces) > max_length:
            return TOO_LONG
        if not self.id_of_symbol.keys() >= set(pieces):
            return self.unknown
        return OK

    def answer_mask(self, vocabulary_size: int) -> np.ndarray:
        """Returns a boolean `(vocabulary_size,)`, true at tokens of answers.

        They are the end and the characters or words, or if there are none,
        the ids without a symbol.
        """
        token_ids = [self.end_id, *self.id_of_symbol.values()]
        if not self.id_of_symbol:
            token_ids += range(len(self.vocabulary), vocabulary_size)
        return np.isin(np.arange(vocabulary_size), token_ids)

    def decode(self, token_ids: Iterable[int]) -> str:
        """Decodes an answer's token ids up to the end symbol.

        Special symbols are left out. An id without a symbol becomes U+FFFD.
        """
        token_ids = list(
            itertools.takewhile(lambda each: each != self.end_id, token_ids)
        )
        lengths = np.array([len(token_ids)])
        symbols = []
        for token_id in self.order_digits(np.array(token_ids), lengths):
            if token_id >= len(self.vocabulary):
                symbols.append("\N{REPLACEMENT CHARACTER}")
            elif self.vocabulary[token_id] not in SPECIAL_SYMBOLS:
                symbols.append(self.vocabulary[token_id])
        return self.separator.join(symbols)

    def _refuse_unknown(self, texts):
        for text in texts:
            for position, piece in enumerate(self.pieces(text)):
                if piece not in self.id_of_symbol:
                    reason = explain(text, self.unknown, self.vocabulary)
                    raise UsageError(
                        f"The text {text[:40]!r} {reason} "
                        f"(position {position})."
                    )


def vocabulary_of(
    texts: Iterable[str], tokens: str = "characters"
) -> tuple[str, ...]:
    """Returns the special symbols and the sorted tokens of texts.

    Tokens are the `"characters"` or the `"words"`, which blanks separate.

    Example:

    >>> vocabulary_of(["What is 1+1?", "2"])[:8]
    ('<pad>', '<start>', '<end>', ' ', '+', '1', '2', '?')
    >>> vocabulary_of(["jump twice", "JUMP JUMP"], tokens="words")[3:]
    ('<words>', 'JUMP', 'jump', 'twice')
    """
    check_choice("tokens", tokens, TOKENS)
    if tokens == "characters":
        return (PAD, START, END, *sorted(set[str]().union(*texts)))
    words = set[str]().union(*map(str.split, texts)) - set(SPECIAL_SYMBOLS)
    return (PAD, START, END, WORDS, *sorted(words))


def _check(vocabulary):
    of_words = WORDS in vocabulary
    for symbol in vocabulary:
        # UTF-8 has no lone surrogates.
        is_text = isinstance(symbol, str) and not _SURROGATES.search(symbol)
        is_token = is_text and (
            symbol.split() == [symbol] if of_words else len(symbol) == 1
        )
        if symbol in SPECIAL_SYMBOLS or is_token:
            continue
        if of_words or not is_text or not _WORD.fullmatch(symbol):
            kinds = "one character, a word of letters from A to Z and a to z"
            raise UsageError(
                f"The vocabulary holds {symbol!r}. A symbol must be "
                f"{'a word without blanks' if of_words else kinds}, or one of "
                f"{', '.join(SPECIAL_SYMBOLS)}."
            )
        if not set(symbol) <= set(vocabulary):
            raise UsageError(
                f"The vocabulary holds the word {symbol!r}, but not all of its "
                "characters."
            )
    counts = collections.Counter(vocabulary)
    for symbol in (PAD, START, END):
        if not counts[symbol]:
            raise UsageError(f"The vocabulary lacks the symbol {symbol}.")
    symbol, count = counts.most_common(1)[0]
    if count > 1:
        raise UsageError(f"The vocabulary holds the symbol {symbol!r} twice.")
