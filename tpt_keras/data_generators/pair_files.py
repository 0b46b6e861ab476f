"""Files of pairs: TSV, CSV or JSON lines, refused where they are uncertain."""

import codecs
import contextlib
import csv
import io
import json
import logging
import pathlib
import re
import reprlib
import typing
from collections.abc import Iterable
from typing import Any

from tpt_keras.errors import UnreadableFileError
from tpt_keras.files import parse_json
from tpt_keras.files import reading
from tpt_keras.files import write_text
from tpt_keras.typing import StrPath

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
    """Writes a JSON-lines file of pairs with their modules and splits.

    Args:
        path: The file.
        pairs: `Pair`s.
        **fields: Further fields of every line.
    """
    lines = (
        json.dumps({**pair._asdict(), **fields}, ensure_ascii=False) + "\n"
        for pair in pairs
    )
    write_text(path, "".join(lines))


def module_names(path: pathlib.Path) -> list[str]:
    """Reads the names of the modules that a file's lines have, if any."""
    if DELIMITERS[path.suffix.lower()]:
        return []
    with reading(path, _ADVICE):
        (_, columns), *rows = _objects(_decoded(path.read_bytes()))
        if "module" not in columns:
            return []
        index = columns.index("module")
        return list(dict.fromkeys(row[index] for _, row in rows))


def read_pairs(path: pathlib.Path) -> list[Pair]:
    """Reads the pairs of one file, whose suffix is a key of `DELIMITERS`.

    It logs the columns, the number of pairs and the first one.

    Raises:
        UnreadableFileError: If the file holds no pairs, or may be read in
            several ways.
    """
    delimiter = DELIMITERS[path.suffix.lower()]
    with reading(path, _ADVICE):
        text = _decoded(path.read_bytes())
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
    _log.info(
        "%s: %d pairs of the columns %s (%s). The first: %s",
        path,
        len(pairs),
        ", ".join(columns),
        "named" if has_header else "no header",
        " -> ".join(map(reprlib.repr, pairs[0][:2])),
    )
    return pairs


def _decoded(content):
    marks = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE
    if content.startswith(marks) or b"\0" in content:
        raise ValueError("it is UTF-16 or no text")
    return content.decode("utf-8-sig")


def _table(text, delimiter, **options):
    """Generates the line numbers and the rows of a table."""
    file = io.StringIO(text, newline="")
    reader = csv.reader(file, delimiter=delimiter, **options)
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
    """Names the form of a table that has other columns."""
    if rows[0][1][0].lower().startswith("sep="):
        return "its first line is Excel's sep="
    for other, name in _SEPARATORS.items():
        by_other = _table(text, other)
        if other != delimiter and all(len(row) > 1 for _, row in by_other):
            return f"its columns may be separated by {name}"
    if all(len(row) == 3 for _, row in rows) and all(
        row[0].isdigit() for _, row in rows[1:]
    ):
        return "its first column is an index (in pandas: index=False)"
    return None


def _fault_of_quotes(rows, text, delimiter):
    if '\\"' in text:
        return "a backslash stands before a quote"
    try:
        for skips in (False, True):
            options = {"strict": True, "skipinitialspace": skips}
            strict = [row for _, row in _table(text, delimiter, **options)]
            if _stripped(strict) != _stripped(rows):
                return "a space stands before a quote"
    except csv.Error as error:
        return str(error)
    if delimiter == "\t" and not _is_as_written(rows, text):
        return "its quotes may belong to the texts or not"
    return None


def _stripped(rows):
    return [[cell.lstrip(" ") for cell in row] for row in rows]


def _is_as_written(rows, text):
    """Returns `True` if tabs alone or a writer that quotes makes this TSV."""
    lines = _lines(text)
    if len(lines) != len(rows) and all(line.count("\t") == 1 for line in lines):
        return False
    for quoting in (csv.QUOTE_NONE, csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
        file = io.StringIO(newline="")
        writer = csv.writer(
            file,
            delimiter="\t",
            quoting=quoting,
            quotechar=None if quoting == csv.QUOTE_NONE else '"',
            lineterminator="\n",
        )
        with contextlib.suppress(csv.Error):
            writer.writerows(rows)
            if _lines(file.getvalue()) == lines:
                return True
    return False


def _lines(text):
    return [line for line in text.splitlines() if line.strip()]
