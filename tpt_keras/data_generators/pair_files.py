"""Files of pairs: TSV, CSV or JSON lines, refused where they are uncertain."""

import codecs
import contextlib
import csv
import io
import logging
import pathlib
import re
import reprlib

from tpt_keras.errors import UnreadableFileError
from tpt_keras.files import parse_json
from tpt_keras.files import reading

COLUMNS = ["question", "answer"]
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


def read_pairs(path: pathlib.Path) -> list[tuple[str, str]]:
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
    columns, has_header = COLUMNS, _is_header(rows[0][1])
    if has_header:
        columns = _names(rows.pop(0)[1])
    question, answer = map(columns.index, COLUMNS)
    pairs = [(row[question], row[answer]) for _, row in rows]
    _log.info(
        "%s: %d pairs of the columns %s (%s). The first: %s",
        path,
        len(pairs),
        ", ".join(columns),
        "named" if has_header else "no header",
        " -> ".join(map(reprlib.repr, pairs[0])),
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
    """Generates the rows of JSON lines, after a header."""
    yield 0, COLUMNS
    for number, line in enumerate(io.StringIO(text), 1):
        if line.strip():
            try:
                pair = parse_json(line)
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from error
            if not isinstance(pair, dict) or not pair.keys() >= set(COLUMNS):
                shown = reprlib.repr(pair)
                raise ValueError(f"line {number} lacks these keys: {shown}")
            yield number, [pair[name] for name in COLUMNS]


def _fault(rows, text, delimiter):
    """Returns the reason why rows are not certain to be pairs, or `None`."""
    for number, row in rows:
        if len(row) != 2 or not all(
            isinstance(cell, str) and cell for cell in row
        ):
            form = delimiter and _other_form(rows, text, delimiter)
            shown = reprlib.repr(row)
            fault = f"line {number} is not a pair of texts: {shown}"
            return f"{fault} ({form})" if form else fault
    if not rows or (len(rows) == 1 and _is_header(rows[0][1])):
        return "it holds no pairs"
    if not delimiter:
        return None
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
