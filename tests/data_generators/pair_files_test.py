import contextlib
import csv
import io
import json
import pathlib
import tempfile

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from tpt_keras.data_generators.text_pairs import read_pairs
from tpt_keras.errors import UnreadableFileError

PAIRS = [(f"{n} + {n}", str(n + n)) for n in range(100)]
HEADER = ("question", "answer")
# A NUL is refused in tables.
TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    min_size=1,
    max_size=9,
)
TRICKY = st.text('a1 "\t\n,;', min_size=1, max_size=4)
MANY_PAIRS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=9)
TRICKY_PAIRS = st.lists(st.tuples(TRICKY, TRICKY), min_size=1, max_size=4)


def as_table(pairs, **options):
    file = io.StringIO(newline="")
    csv.writer(file, **options).writerows(pairs)
    return file.getvalue()


WRITERS = {
    ".tsv": lambda pairs: "".join(f"{q}\t{a}\n" for q, a in pairs),
    ".csv": as_table,
    ".jsonl": lambda pairs: "".join(
        json.dumps({"question": q, "answer": a}) + "\n" for q, a in pairs
    ),
}


def write(path, pairs=PAIRS):
    path.write_text(WRITERS[path.suffix](pairs), "utf-8", newline="")
    return path


def read_text(text, suffix):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, f"a{suffix}")
        path.write_text(text, "utf-8", newline="")
        return [pair[:2] for pair in read_pairs(path)]


def assert_read_or_refused(text, suffix, pairs):
    with contextlib.suppress(UnreadableFileError):
        assert read_text(text, suffix) == pairs


@settings(max_examples=30)
@given(MANY_PAIRS)
def test_json_lines_are_read_as_written(pairs):
    assert read_text(WRITERS[".jsonl"](pairs), ".jsonl") == pairs


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@settings(max_examples=30)
@given(MANY_PAIRS | TRICKY_PAIRS)
def test_tables_are_read_as_written_or_refused(suffix, quoting, pairs):
    """With a header only texts that look like a table of their own are not."""
    delimiter = "," if suffix == ".csv" else "\t"
    options = {"quoting": quoting, "delimiter": delimiter}
    assert_read_or_refused(as_table(pairs, **options), suffix, pairs)
    named = as_table([HEADER, *pairs], **options)
    is_certain = suffix == ".csv" and not any(
        pair in (HEADER, HEADER[::-1]) or "\\" in "".join(pair)
        for pair in pairs
    )
    if is_certain:
        assert read_text(named, suffix) == pairs
    else:
        assert_read_or_refused(named, suffix, pairs)


@settings(max_examples=100)
@given(TRICKY_PAIRS)
def test_tsv_without_quoting_is_read_as_written_or_refused(pairs):
    if any(set("\t\n") & set(text) for pair in pairs for text in pair):
        return
    # Every text may be one that a writer has quoted because it needs quotes.
    texts = [text for pair in pairs for text in pair if '"' in text]
    quoted = [text[0] == text[-1] == '"' and len(text) > 1 for text in texts]
    if not texts or not all(quoted):
        assert_read_or_refused(WRITERS[".tsv"](pairs), ".tsv", pairs)


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@pytest.mark.parametrize("header", ["\ufeffQuestion,Answer", "ANSWER,question"])
def test_header_names_the_columns_in_any_order(suffix, header):
    lines = [header, "1+1,2", "", "2+2,4", ""]
    if suffix == ".tsv":
        lines = [line.replace(",", "\t") for line in lines]
    pairs = read_text("\r\n".join(lines), suffix)
    if "ANSWER" in header:
        pairs = [pair[::-1] for pair in pairs]
    assert pairs == [("1+1", "2"), ("2+2", "4")]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_quoted_tsv_is_read_as_the_same_csv(quoting, end):
    """As pandas and `csv.writer` write it."""
    pairs = [('He said "2 + 2"', "4"), ("two\nlines", 'a "b"'), ("a\tb", "c")]
    options = {"quoting": quoting, "lineterminator": end}
    text = as_table([HEADER, *pairs], delimiter="\t", **options)
    assert read_text(text, ".tsv") == pairs
    assert read_text(as_table([HEADER, *pairs], **options), ".csv") == pairs


def test_quotes_inside_a_text_of_tsv_are_kept():
    assert read_text('say "hi"\t6"\n', ".tsv") == [('say "hi"', '6"')]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.tsv", b"", "no pairs"),
        ("a.tsv", b"question\tanswer\n", "no pairs"),
        ("a.tsv", b"1+1\t2\n2+2\n", "line 2"),
        ("a.tsv", b"1+1\t2\t3\n", "line 1"),
        ("a.tsv", b"1+1\t\n", "line 1"),
        ("a.tsv", b"1+1\t\xff\n", "UTF-8"),
        ("a.csv", b'2+2,"4\n', ""),
        ("a.csv", b"1+1;2\n", "line 1"),
        ("a.jsonl", b'{"question": "1+1"}\n', "line 1"),
        ("a.jsonl", b'{"prompt": "1+1", "answer": "2"}\n', "prompt"),
        ("a.jsonl", b'{"question": "1+1", "answer": 2}\n', "line 1"),
        ("a.jsonl", b"[1, 2]\n", "line 1"),
        ("a.jsonl", b"{\n", "line 1"),
        ("a.jsonl", b'\n{"question": "\\ud83d", "answer": "2"}', "line 2"),
        # Forms that are recognised.
        ("a.csv", "1+1,2\n".encode("utf-16"), "UTF-16"),
        ("a.tsv", "1+1\t2\n".encode("utf-16-le"), "UTF-16"),
        ("a.jsonl", b"\xfe\xff\0{", "UTF-16"),
        ("a.csv", b"question;answer\n1,5;2\n", "semicolons"),
        ("a.csv", b'"question";"answer"\n"1";"2"\n', "semicolons"),
        ("a.csv", b"1,5 + 1?;3\n2,5 + 1?;4\n", "semicolons"),
        ("a.csv", b"question\tanswer\n1+1\t2\n", "tabs"),
        ("a.tsv", b"question,answer\n1+1,2\n", "commas"),
        ("a.csv", b",question,answer\n0,1+1,2\n1,2+2,4\n", "line 1"),
        ("a.csv", b"sep=,\nquestion,answer\n1+1,2\n", "line 1"),
        # Headers with other names.
        ("a.csv", b"prompt,completion\nhi,hello\n", "header"),
        ("a.csv", b"question,label\n1+1,2\n", "header"),
        ("a.csv", b"0,1\n1+1,2\n", "header"),
        ("a.tsv", b"Frage\tAntwort\nWas ist 2 + 2?\tvier\n", "header"),
        ("a.csv", b"1+1,2\nquestion,answer\n2+2,4\n", "line 2"),
        # Quotes of which it is not certain that they are part of a text.
        ("a.csv", b'1+1, "2"\n', "quote"),
        ("a.csv", b'1+1, "2, or two"\n', ""),
        ("a.tsv", b'question\tanswer\n1+1\t "2"\n', "quote"),
        ("a.tsv", b'"Hello"\tHallo\nWorld\tWelt\n', "quotes"),
        ("a.tsv", b'"To be" is\tverb\n', ""),
        ("a.tsv", b'"one\t1\ntwo"\t2\n', "quotes"),
        ("a.csv", b'"say \\"hi\\"",2\n', "backslash"),
        ("a.tsv", b'"say \\"hi\\""\t2\n', "backslash"),
    ],
)
def test_uncertain_file_is_refused(tmp_path, name, content, reason):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UnreadableFileError) as error:
        read_pairs(path)
    assert error.value.path == str(path)
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_one_line_says_what_was_read(tmp_path, caplog, suffix):
    with caplog.at_level("INFO", "tpt_keras"):
        read_pairs(write(tmp_path / f"a{suffix}"))
    [line] = caplog.messages
    for part in (f"a{suffix}", "100", "question, answer", "0 + 0"):
        assert part in line
    assert "\n" not in line
