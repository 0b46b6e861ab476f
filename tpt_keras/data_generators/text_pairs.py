"""A user's own pairs of questions and answers: their files, and the task."""

import csv
import difflib
import hashlib
import io
import itertools
import json
import logging
import pathlib
import re
import reprlib
import typing
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

from tpt_keras.answer import WORDS
from tpt_keras.data_generators.examples import ArrayExamples
from tpt_keras.data_generators.task import TRAIN
from tpt_keras.data_generators.task import Task
from tpt_keras.data_generators.task import fits
from tpt_keras.data_generators.task import matching_groups
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.files import reading
from tpt_keras.files import write_text
from tpt_keras.tokenizers.character_tokenizer import TOKENS
from tpt_keras.tokenizers.character_tokenizer import VOCABULARIES
from tpt_keras.tokenizers.character_tokenizer import vocabulary_of
from tpt_keras.typing import StrPath

TEST = "test"

COLUMNS = ["question", "answer"]
# Further keys of JSON lines: in all lines of a file, or in none.
LABELS = ["module", "split"]
# The delimiter of each kind of file; JSON lines have keys.
DELIMITERS = {".tsv": "\t", ".csv": ",", ".jsonl": ""}

_ADVICE = (
    "A file of pairs is UTF-8, and every line has a question and its answer."
)

_log = logging.getLogger(__name__)


class Pair(typing.NamedTuple):
    """A question, its answer, and where it belongs, if the file says it."""

    question: str
    answer: str
    module: str = ""
    split: str = ""


def write_pairs(path: StrPath, pairs: Iterable[Pair], **fields: Any) -> None:
    """Writes a JSON-lines file of pairs; each line also has the `fields`."""
    lines = []
    for pair in pairs:
        known = {name: text for name, text in pair._asdict().items() if text}
        lines.append(json.dumps({**known, **fields}, ensure_ascii=False) + "\n")
    write_text(path, "".join(lines))


def read_pairs(path: pathlib.Path) -> list[Pair]:
    """Reads the pairs of one file.

    Raises:
        UnreadableFileError: If the file holds no pairs, or anything else.
    """
    delimiter = DELIMITERS[path.suffix.lower()]
    with reading(path, _ADVICE):
        content = path.read_bytes()
        if b"\0" in content:
            raise ValueError("it is UTF-16 or no text")
        text = content.decode("utf-8-sig")
        rows = list(_table(text, delimiter) if delimiter else json_rows(text))
        if not rows:
            raise ValueError("it holds no pairs")
        keys = set().union(*(row for _, row in rows))
        columns = COLUMNS + [label for label in LABELS if label in keys]
        pairs = []
        for number, row in rows:
            texts = [row.get(column) for column in columns]
            if not all(isinstance(text, str) and text for text in texts):
                raise ValueError(
                    f"line {number} lacks a text of {', '.join(columns)}: "
                    f"{reprlib.repr(row)}"
                )
            pairs.append(Pair(**dict(zip(columns, texts))))
    return pairs


def _table(text, delimiter):
    """Generates the line numbers and the rows of a table, as dicts."""
    # Either the backslash escapes the quote, or the text ends in it.
    unclear = re.search(rf'\\""?({delimiter}|[\r\n]|$)', text)
    if unclear:
        line = len(re.split("\r\n?|\n", text[: unclear.start()]))
        raise ValueError(
            f"line {line}: a backslash stands before a quote at the end of a "
            "text; double each quote, or write JSON lines"
        )
    # Only where nothing else ends a line, a carriage return does.
    file = io.StringIO(text, newline="\n" if "\n" in text else "")
    first = re.match("[^\r\n]*", text)[0].lower()
    # As in "question, answer".
    spaced = bool(re.search(f" {delimiter}|{delimiter} ", first))
    reader = csv.DictReader(
        file, delimiter=delimiter, strict=True, skipinitialspace=spaced
    )
    names = [name.strip().lower() for name in reader.fieldnames or ()]
    if sorted(names) != sorted(COLUMNS):
        advice = f"put {delimiter.join(COLUMNS)!r} as its first line"
        if {*COLUMNS} <= {*names}:
            advice = "leave out its other columns"
        elif {*COLUMNS} <= {*re.split(r"\W+", first)}:
            advice = f"separate its columns by {delimiter!r}"
        raise ValueError(
            f"{advice}; its first lines: {reprlib.repr(text.splitlines()[:2])}"
        )
    reader.fieldnames = names
    try:
        for row in reader:
            if None in row:
                raise ValueError("it has more than two columns")
            # The quotes would be part of the text, which nobody means.
            if any(re.match(' +"', cell or "") for cell in row.values()):
                raise ValueError("it has a space before a quote")
            if spaced:
                row = {name: (cell or "").strip() for name, cell in row.items()}
            yield reader.line_num, row
    except (csv.Error, ValueError) as error:
        raise ValueError(f"line {reader.line_num}: {error}") from error


def json_rows(text):
    """Generates the line numbers and the objects of JSON lines."""
    for number, line in enumerate(io.StringIO(text), 1):
        if line.strip():
            try:
                row = json.loads(line)
                # UTF-8 has no half of a surrogate pair, escapes have.
                json.dumps(row, ensure_ascii=False).encode()
                if not isinstance(row, dict):
                    raise ValueError("it is no object")
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from error
            yield number, row


class TextPairsTask(Task):
    """Pairs of a question and its answer from TSV, CSV or JSON-lines files.

    The first line of a TSV or CSV file has the names of its two columns,
    `question` and `answer`, in either order; if a space is between them, spaces
    around the texts are left out. A text that starts with a quote or has a
    delimiter or a line break is quoted, and its quotes are doubled, as pandas
    and `csv.writer` do it (the dialects `excel-tab` and `excel`). A JSON-lines
    file (.jsonl) has an object with these two keys in every line. All files are
    UTF-8. The pairs are held in memory, one byte a character for vocabularies
    of up to 256 symbols.

    A file's group has the name of the file without its suffix. About
    `test_share` of the questions are the split `test`. The hash of a question
    and the seed decide, so that a question keeps its split when pairs or files
    are added.

    The lines of a JSON-lines file may also have the keys `module`, which is
    then their group, and `split`: `train`, or the name of a split for
    evaluation. No question may be in `train` and in another split.

    Args:
        data_dir: A file, or a folder of files.
        groups: Names of groups, or patterns. Defaults to all.
        test_share: Expected share of the questions that is held out for
            evaluation.
        split_seed: Seed of the choice.
        vocabulary: The symbols, each at its token id, for example those of a
            tokenizer, or a list of words; `"mathematics"` for those of the
            Mathematics Dataset, or `"mathematics_words"` with its words; or the
            path of a text file, whose characters or words are taken. Defaults
            to the characters of the pairs, or to the words of the training's.
        tokens: `"characters"` or `"words"`, which blanks separate. A test
            question with a word that is not in the vocabulary counts as wrong.

    Raises:
        UsageError: If a file is missing or unreadable, a character, or a
            word of the training, is not in the vocabulary, a text has no words
            where tokens are words, or the labels of a split are contradictory.

    Example:

    ```python
    task = TextPairsTask("capitals.tsv", test_share=0.2)
    for question, answer in task.examples("test")["capitals"].texts([0, 1]):
        print(question, answer)
    ```
    """

    name = "text_pairs"
    splits: tuple[str, ...] = (TEST,)

    def __init__(
        self,
        data_dir: StrPath,
        groups: Sequence[str] = (),
        test_share: float = 0.1,
        split_seed: int = 0,
        vocabulary: str | Sequence[str] = "",
        tokens: str = "characters",
    ) -> None:
        check_choice("tokens", tokens, TOKENS)
        if not 0 <= test_share < 1:
            raise UsageError(
                f"`test_share` must be in [0, 1). Received: {test_share}.",
                field="test_share",
            )
        pairs = _read_groups(data_dir, groups)
        if not isinstance(vocabulary, str) and WORDS in vocabulary:
            tokens = "words"
        if tokens == "words":
            pairs = {
                name: [_of_words(pair, data_dir) for pair in part]
                for name, part in pairs.items()
            }
        self.groups = tuple(pairs)
        count = sum(map(len, pairs.values()))
        first = reprlib.repr(pairs[self.groups[0]][0][:2])
        _log.info("%s: %d pairs, the first %s", data_dir, count, first)
        labels = dict.fromkeys(
            pair.split for part in pairs.values() for pair in part
        )
        for label in labels:
            plain = label.strip().casefold()
            close = difflib.get_close_matches(plain, [TRAIN], cutoff=0.75)
            if close and label != TRAIN:
                raise UsageError(
                    f"The split {label!r} looks like {TRAIN!r}. Write it so, "
                    "or give it another name.",
                    field="split",
                )
        splits = dict.fromkeys(label or TEST for label in labels)
        splits.pop(TRAIN, None)
        self.splits = tuple(splits) or (TEST,)
        by_split = {split: {} for split in (TRAIN, *self.splits)}
        # Of all pairs, because a single one may have been edited.
        self.fingerprints = {}
        sides: list[set[str]] = [set(), set()]
        for group, group_pairs in pairs.items():
            parts = {split: [] for split in by_split}
            for question, answer, _, split in group_pairs:
                is_test = _is_held_out(question, test_share, split_seed)
                side = split or (TEST if is_test else TRAIN)
                parts[side].append((question, answer))
            digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
            self.fingerprints[group] = (
                f"{len(parts[TRAIN])} training and "
                f"{len(group_pairs) - len(parts[TRAIN])} test pairs, {digest}"
            )
            for split, part in parts.items():
                if any(labels):  # a hash has one side for a question
                    sides[split == TRAIN].update(pair[0] for pair in part)
                if part:
                    by_split[split][group] = part
        if both := set.intersection(*sides):
            raise UsageError(
                f"The question {min(both)!r} would be both trained on and "
                "evaluated. Leave it out of one of the splits.",
                field="split",
                path=data_dir,
            )
        self._tokenize(by_split, vocabulary, tokens)

    def _tokenize(self, by_split, vocabulary, tokens):
        def texts(*splits):
            for split in splits:
                for part in by_split[split].values():
                    yield from itertools.chain.from_iterable(part)

        of_words = tokens == "words"
        known = texts(TRAIN) if of_words else texts(*by_split)
        self.vocabulary = _vocabulary(vocabulary, tokens, known)
        self._examples = {}
        for split, parts in by_split.items():
            symbols = self.vocabulary
            if split != TRAIN and of_words:
                # A model knows the first of them.
                found = vocabulary_of(texts(split), tokens)
                symbols += tuple(sorted({*found} - {*symbols}))
            self._examples[split] = {
                group: ArrayExamples.from_texts(part, symbols)
                for group, part in parts.items()
            }

    @staticmethod
    def select_groups(data_dir, patterns):
        return tuple(_read_groups(data_dir, patterns))

    def adapted(self, model_config):
        given = model_config.vocabulary
        if given not in (type(model_config)().vocabulary, self.vocabulary):
            raise UsageError(
                f"The `vocabulary` of pairs of text is one of "
                f"`dataset_options` (vocabulary={given}).",
                field="vocabulary",
            )
        return model_config.replace(vocabulary=self.vocabulary)


def _read_groups(data_dir, patterns):
    """Reads the pairs of the groups that fit the patterns, as a dict."""
    patterns, groups = patterns or ["all"], {}
    for path in _files(data_dir):
        if DELIMITERS[path.suffix.lower()]:
            # A table is one group, and may be no pairs if it is not chosen.
            groups.setdefault(path.stem, [])
            if not fits(path.stem, patterns):
                continue
        for pair in read_pairs(path):
            groups.setdefault(pair.module or path.stem, []).append(pair)
    names = matching_groups(patterns, groups)
    return {name: groups[name] for name in names}


def _files(data_dir):
    path = pathlib.Path(data_dir)
    paths = sorted(path.iterdir()) if path.is_dir() else [path]
    paths = [each for each in paths if each.suffix.lower() in DELIMITERS]
    if not paths or not paths[0].exists():
        raise UsageError(
            f"{str(data_dir)!r} is neither a file nor a folder of pairs of "
            f"texts ({', '.join(DELIMITERS)}). Name one as `data_dir`.",
            field="data_dir",
            path=data_dir,
        )
    return paths


def _is_held_out(question, share, seed):
    digest = hashlib.blake2b(f"{seed}/{question}".encode(), digest_size=8)
    return int.from_bytes(digest.digest()) < share * 2**64


def _of_words(pair, data_dir):
    """Returns a pair with one blank between words, or refuses it."""
    texts = [" ".join(text.split()) for text in pair[:2]]
    if not all(texts):
        raise UsageError(
            f"The pair {reprlib.repr(pair[:2])} has a text without words. "
            "Leave it out, or take the characters as tokens.",
            field="tokens",
            path=data_dir,
        )
    return pair._replace(**dict(zip(COLUMNS, texts)))


def _vocabulary(vocabulary, tokens, texts):
    if not isinstance(vocabulary, str):
        if tokens == "words" and WORDS not in vocabulary:
            return vocabulary_of(vocabulary, tokens)
        return tuple(vocabulary)
    if vocabulary in VOCABULARIES and tokens == "characters":
        return VOCABULARIES[vocabulary]
    if vocabulary:
        with reading(vocabulary, "Name a text file as `vocabulary`."):
            text = pathlib.Path(vocabulary).read_text("utf-8-sig")
        texts = [text.replace("\n", " " * (tokens == "words"))]
    return vocabulary_of(texts, tokens)
