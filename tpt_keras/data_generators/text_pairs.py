"""A user's own pairs of questions and answers: their files, and the task.

A file that may be read in several ways is refused.
"""

import csv
import hashlib
import io
import json
import logging
import pathlib
import re
import reprlib
import typing
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

from tpt_keras.data_generators.examples import ArrayExamples
from tpt_keras.data_generators.task import TRAIN
from tpt_keras.data_generators.task import Task
from tpt_keras.data_generators.task import matching_groups
from tpt_keras.errors import UnreadableFileError
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.files import parse_json
from tpt_keras.files import reading
from tpt_keras.files import write_text
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
    "A file of pairs is UTF-8, and every line has a question and its answer. A "
    "header, question and answer in either order, makes a table certain."
)
_SEPARATORS = {"\t": "tabs", ",": "commas", ";": "semicolons"}
# Other names of columns. Pandas calls columns without names 0 and 1.
_OTHER_NAMES = re.compile(
    "[01aqxy]|answers|completion|inputs?|labels?|outputs?|problem|prompt|query|"
    "questions|response|solution|source|src|target|text|tgt"
)
_NAME = re.compile(r"[^\W\d_][\w -]*")

_log = logging.getLogger(__name__)


class Pair(typing.NamedTuple):
    """A question, its answer, and where it belongs, if the file says it."""

    question: str
    answer: str
    module: str = ""
    split: str = ""


def write_pairs(path: StrPath, pairs: Iterable[Pair], **fields: Any) -> None:
    """Writes a JSON-lines file of pairs; each line also has the `fields`."""
    lines = (
        json.dumps({**pair._asdict(), **fields}, ensure_ascii=False) + "\n"
        for pair in pairs
    )
    write_text(path, "".join(lines))


def read_pairs(path: pathlib.Path, level: int = logging.INFO) -> list[Pair]:
    """Reads the pairs of one file, and logs what they are on a level.

    Raises:
        UnreadableFileError: If the file holds no pairs, or may be read in
            several ways.
    """
    delimiter = _delimiter(path)
    with reading(path, _ADVICE):
        content = path.read_bytes()
        if b"\0" in content:
            raise ValueError("it is UTF-16 or no text")
        text = content.decode("utf-8-sig")
        rows = list(_table(text, delimiter) if delimiter else _objects(text))
        fault = _fault(rows, text, delimiter)
    if fault:
        shown = ", ".join(reprlib.repr(row) for _, row in rows[:2])
        raise UnreadableFileError(
            f"The file {str(path)!r} cannot be read with certainty: {fault}. "
            f"Its first rows: {shown or 'none'}. {_ADVICE}",
            path=path,
        )
    has_header = not delimiter or _is_header(rows[0][1])
    columns = _names(rows.pop(0)[1]) if has_header else COLUMNS
    pairs = [Pair(**dict(zip(columns, row))) for _, row in rows]
    _log.log(
        level,
        "%s: %d pairs of the columns %s (%s). The first: %s",
        path,
        len(pairs),
        ", ".join(columns),
        "named" if has_header else "no header",
        " -> ".join(map(reprlib.repr, pairs[0][:2])),
    )
    return pairs


def _delimiter(path):
    return DELIMITERS[path.suffix.lower()]


def _table(text, delimiter, strict=True, **options):
    """Generates the line numbers and the rows of a table."""
    file = io.StringIO(text, newline="")
    reader = csv.reader(file, delimiter=delimiter, strict=strict, **options)
    for row in reader:
        if "".join(row).strip() or len(row) > 1:
            yield reader.line_num, row


def _objects(text):
    """Returns the line numbers and the rows of JSON lines, after a header."""
    pairs = []
    for number, line in enumerate(io.StringIO(text), 1):
        if line.strip():
            try:
                pairs.append((number, parse_json(line)))
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from error
    keys = [pair.keys() for _, pair in pairs if isinstance(pair, dict)]
    columns = COLUMNS + [name for name in LABELS if name in set().union(*keys)]
    for number, pair in pairs:
        if not isinstance(pair, dict) or not pair.keys() >= set(columns):
            shown = reprlib.repr(pair)
            raise ValueError(
                f"line {number} lacks a key of {', '.join(columns)}: {shown}"
            )
    rows = [(number, [pair[c] for c in columns]) for number, pair in pairs]
    return [(0, columns), *rows]


def _fault(rows, text, delimiter):
    """Returns the reason why rows are not certain to be pairs, or `None`."""
    width = 2 if delimiter else len(rows[0][1])
    for number, row in rows:
        if len(row) != width or not all(
            isinstance(cell, str) and cell for cell in row
        ):
            form = delimiter and _other_form(rows, text, delimiter)
            shown = reprlib.repr(row)
            fault = f"line {number} is not a pair of texts: {shown}"
            return f"{fault} ({form})" if form else fault
    if not delimiter:
        return None if rows[1:] else "it holds no pairs"
    if not rows or (len(rows) == 1 and _is_header(rows[0][1])):
        return "it holds no pairs"
    for number, row in rows[1:]:
        if _is_header(row):
            return f"line {number} is a header"
    if not _is_header(rows[0][1]):
        if _may_be_header(rows[0][1], [row for _, row in rows[1:]]):
            return "its first row may be a header"
        if delimiter == "," and (form := _other_form(rows, text, delimiter)):
            return form
    return _fault_of_quotes([row for _, row in rows], text, delimiter)


def _names(row):
    return [cell.strip().lower() for cell in row]


def _is_header(row):
    return sorted(_names(row)) == sorted(COLUMNS)


def _may_be_header(first, others):
    """Returns `True` for names of columns, or words above a column of none."""
    names = _names(first)
    if set(names) & set(COLUMNS) or all(map(_OTHER_NAMES.fullmatch, names)):
        return True
    return all(map(_NAME.fullmatch, first)) and any(
        not any(map(_NAME.fullmatch, column)) for column in zip(*others)
    )


def _other_form(rows, text, delimiter):
    for other, name in _SEPARATORS.items():
        by_other = _table(text, other, strict=False)
        if other != delimiter and all(len(row) > 1 for _, row in by_other):
            return f"its columns may be separated by {name}"
    return None


def _fault_of_quotes(rows, text, delimiter):
    if '\\"' in text:
        return "a backslash stands before a quote"
    without_spaces = _table(text, delimiter, skipinitialspace=True)
    if _stripped(row for _, row in without_spaces) != _stripped(rows):
        return "a space stands before a quote"
    if delimiter == "\t" and not _is_as_written(rows, text):
        return "its quotes may belong to the texts or not"
    return None


def _stripped(rows):
    return [[cell.lstrip(" ") for cell in row] for row in rows]


def _is_as_written(rows, text):
    """Returns `True` if a writer makes this TSV of the rows."""
    lines = _lines(text)
    if len(lines) != len(rows) and all(line.count("\t") == 1 for line in lines):
        return False
    written = ["\n".join(map("\t".join, rows))]
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
        file = io.StringIO(newline="")
        csv.writer(file, "excel-tab", quoting=quoting).writerows(rows)
        written.append(file.getvalue())
    return lines in map(_lines, written)


def _lines(text):
    return [line for line in text.splitlines() if line.strip()]


class TextPairsTask(Task):
    """Pairs of a question and its answer from TSV, CSV or JSON-lines files.

    A TSV or CSV file has two columns. A header, `question` and `answer`, names
    them, in either order. Without one, the question is first. A JSON-lines file
    (.jsonl) has an object with these two keys in every line. All files are
    UTF-8. The pairs are held in memory, one byte a character for vocabularies
    of up to 256 symbols.

    Each file is a group, named after the file without its suffix. About
    `test_share` of the questions are the split `test`. The hash of a question
    and the seed decide, so that a question keeps its split when pairs or files
    are added.

    The lines of a JSON-lines file may also have the keys `module`, which is
    then their group, and `split`: `train`, or the name of a split for
    evaluation.

    Args:
        data_dir: A file, or a folder of files.
        groups: Names of groups, or patterns. Defaults to all.
        test_share: Expected share of the questions that is held out for
            evaluation.
        split_seed: Seed of the choice.
        vocabulary: The symbols, each at its token id, for example those of a
            tokenizer; `"mathematics"` for those of the Mathematics Dataset, or
            `"mathematics_words"` with its words; or the path of a text file,
            whose characters are taken. Defaults to the characters of the
            pairs.

    Raises:
        UsageError: If a file is missing, unreadable or uncertain, there are
            no pairs, or a character is not in the vocabulary.

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
    ) -> None:
        if not 0 <= test_share < 1:
            raise UsageError(
                f"`test_share` must be in [0, 1). Received: {test_share}.",
                field="test_share",
            )
        pairs = _read_groups(data_dir, groups)
        self.groups = tuple(pairs)
        self.vocabulary = _vocabulary(vocabulary, pairs)
        splits = dict.fromkeys(
            pair.split or TEST for part in pairs.values() for pair in part
        )
        splits.pop(TRAIN, None)
        self.splits = tuple(splits) or (TEST,)
        self._examples = {split: {} for split in (TRAIN, *self.splits)}
        # Of all pairs, because a single one may have been edited.
        self.fingerprints = {}
        for group, group_pairs in pairs.items():
            parts = {split: [] for split in self._examples}
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
                if part:
                    self._examples[split][group] = ArrayExamples.from_texts(
                        part, self.vocabulary
                    )

    @staticmethod
    def select_groups(data_dir, patterns):
        return tuple(_read_groups(data_dir, patterns, names_only=True))

    def examples(self, split):
        check_choice("split", split, self._examples)
        return self._examples[split]

    def adapted(self, model_config):
        given = model_config.vocabulary
        if given not in (type(model_config)().vocabulary, self.vocabulary):
            raise UsageError(
                f"The `vocabulary` of pairs of text is one of "
                f"`dataset_options` (vocabulary={given}).",
                field="vocabulary",
            )
        return model_config.replace(vocabulary=self.vocabulary)


def _read_groups(data_dir, patterns, names_only=False):
    """Reads the pairs of the groups that fit the patterns, as a dict."""
    paths = _files(data_dir)
    # A table is one group. Only a file of JSON may name others.
    level = logging.DEBUG if names_only else logging.INFO
    pairs_of = {
        path: read_pairs(path, level) for path in paths if not _delimiter(path)
    }
    names = dict.fromkeys(
        pair.module or path.stem
        for path in paths
        for pair in pairs_of.get(path, [Pair("", "")])
    )
    groups = {name: [] for name in matching_groups(patterns or ["all"], names)}
    for path in [] if names_only else paths:
        if _delimiter(path) and path.stem not in groups:
            _log.info("Not read, because not chosen: %s", path)
            continue
        for pair in pairs_of.get(path) or read_pairs(path):
            groups.get(pair.module or path.stem, []).append(pair)
    return groups


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
    if len({each.stem for each in paths}) < len(paths):
        raise UsageError(
            f"Two files of {str(data_dir)!r} have the same name but for their "
            "suffixes. Rename one.",
            field="data_dir",
            path=data_dir,
        )
    return paths


def _is_held_out(question, share, seed):
    digest = hashlib.blake2b(f"{seed}/{question}".encode(), digest_size=8)
    return int.from_bytes(digest.digest()) < share * 2**64


def _vocabulary(vocabulary, pairs):
    if not isinstance(vocabulary, str):
        return tuple(vocabulary)
    if vocabulary in VOCABULARIES:
        return VOCABULARIES[vocabulary]
    if vocabulary:
        with reading(vocabulary, "Name a text file as `vocabulary`."):
            text = pathlib.Path(vocabulary).read_text("utf-8-sig")
        return vocabulary_of(text.replace("\n", ""))
    return vocabulary_of(
        text for part in pairs.values() for pair in part for text in pair[:2]
    )
