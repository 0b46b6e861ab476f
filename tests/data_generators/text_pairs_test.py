import csv
import io
import json
import pathlib
import re
import tempfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from tests.data_generators.files import all_texts
from tests.refusals import refused
from tpt_keras.data_generators import open_task
from tpt_keras.data_generators import select_groups
from tpt_keras.data_generators.examples import question_keys
from tpt_keras.data_generators.examples import readable_examples
from tpt_keras.data_generators.text_pairs import Pair
from tpt_keras.data_generators.text_pairs import TextPairsTask
from tpt_keras.data_generators.text_pairs import read_pairs
from tpt_keras.data_generators.text_pairs import write_pairs
from tpt_keras.errors import UnreadableFileError
from tpt_keras.models import PRESETS
from tpt_keras.tokenizers.character_tokenizer import MATHEMATICS_VOCABULARY
from tpt_keras.tokenizers.character_tokenizer import VOCABULARIES

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


LABELLED_LINE = (
    b'{"question": "1", "answer": "2", "module": "a", "split": "b"}\n'
)
OTHER_LINE = b'{"question": "1", "answer": "2"}\n'


def as_table(pairs, header=HEADER, **options):
    file = io.StringIO(newline="")
    csv.writer(file, **options).writerows([header, *pairs])
    return file.getvalue()


WRITERS = {
    ".tsv": lambda pairs: as_table(pairs, delimiter="\t"),
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


@settings(max_examples=30)
@given(MANY_PAIRS)
def test_json_lines_are_read_as_written(pairs):
    assert read_text(WRITERS[".jsonl"](pairs), ".jsonl") == pairs


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@settings(max_examples=30)
@given(MANY_PAIRS | TRICKY_PAIRS)
def test_tables_are_read_as_written(suffix, quoting, pairs):
    delimiter = "," if suffix == ".csv" else "\t"
    text = as_table(pairs, delimiter=delimiter, quoting=quoting)
    cells = [cell for pair in pairs for cell in pair]
    try:
        found = read_text(text, suffix)
    except UnreadableFileError:
        assert '\\"' in text or any(re.match(' +"', cell) for cell in cells)
    else:
        assert found == pairs


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@pytest.mark.parametrize(
    "header", ["\ufeffQuestion,Answer", "ANSWER, question"]
)
def test_header_names_the_columns_in_any_order(suffix, header):
    lines = [header, "1+1,2", "", "2+2,4", ""]
    if suffix == ".tsv":
        lines = [line.replace(",", "\t") for line in lines]
    pairs = read_text("\r\n".join(lines), suffix)
    if "ANSWER" in header:
        pairs = [pair[::-1] for pair in pairs]
    assert pairs == [("1+1", "2"), ("2+2", "4")]


def test_header_tells_of_spaces():
    text = 'question, answer\n1 + 1, 2\n2+2 , "4"\n'
    assert read_text(text, ".csv") == [("1 + 1", "2"), ("2+2", "4")]


def test_the_header_alone_tells_of_spaces():
    text = 'question,answer\r"What, x", 1 \rb, 2\r'
    assert read_text(text, ".csv") == [("What, x", " 1 "), ("b", " 2")]


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_quotes_may_follow_backslashes_within_a_text(suffix):
    pairs = [('Who is G\\"odel, K.?', 'a \\"u b')]
    assert read_text(WRITERS[suffix](pairs), suffix) == pairs
    unquoted = 'question\tanswer\nG\\"odel\t\\"u\n'
    assert read_text(unquoted, ".tsv") == [('G\\"odel', '\\"u')]


def test_quotes_belong_to_a_text_unless_it_starts_with_one():
    text = 'question\tanswer\nsay "hi"\t6"\n"Hello"\t"a ""b"""\n'
    pairs = [('say "hi"', '6"'), ("Hello", 'a "b"')]
    assert read_text(text, ".tsv") == pairs
    assert read_text(text.replace("\t", ","), ".csv") == pairs


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.csv", b"", "'question,answer'"),
        ("a.tsv", b"question\tanswer\n", "no pairs"),
        ("a.tsv", b"question\tanswer\n1+1\t2\n\n2+2\n", "line 4"),
        ("a.tsv", b"question\tanswer\n1+1\t2\t3\n", "line 2"),
        ("a.tsv", b"question\tanswer\n1+1\t\n", "line 2"),
        ("a.tsv", b"question\tanswer\n1+1\t\xff\n", "UTF-8"),
        ("a.csv", b'question,answer\n2+2,"4\n', "unexpected end"),
        ("a.jsonl", b'{"prompt": "1+1", "answer": "2"}\n', "prompt"),
        ("a.jsonl", b'{"question": "1+1", "answer": 2}\n', "line 1"),
        ("a.jsonl", b"[1, 2]\n", "line 1"),
        ("a.jsonl", b"{\n", "line 1"),
        # Labels are in all lines of a file, or in none.
        ("a.jsonl", LABELLED_LINE + OTHER_LINE, "line 2"),
        ("a.jsonl", LABELLED_LINE.replace(b'"b"', b'["b"]'), "line 1"),
        ("a.jsonl", LABELLED_LINE.replace(b'"b"', b'""'), "line 1"),
        ("a.jsonl", b'\n{"question": "\\ud83d", "answer": "2"}', "line 2"),
        ("a.csv", "question,answer\n1+1,2\n".encode("utf-16"), "UTF-16"),
        ("a.jsonl", b"\xfe\xff\0{", "UTF-16"),
        # Without a header, or with another one.
        ("a.csv", b"1+1,2\n2+2,4\n", "'question,answer'"),
        ("a.tsv", b"1+1\t2\n2+2\t4\n", r"'question\tanswer'"),
        ("a.csv", b"prompt,answer\nhi,hello\n", "'prompt,answer', 'hi,hello'"),
        ("a.csv", b"question;answer\n1,5;2\n", "'question;answer'"),
        ("a.csv", b",question,answer\n0,1+1,2\n", "',question,answer'"),
        ("a.csv", b"question;answer\n1,5;2\n", "by ','"),
        ("a.csv", b"question,answer,id\n1+1,2,3\n", "other columns"),
        ("a.csv", b"question,answer\n\r1,2\n", "new-line"),
        # Quotes of which it is not certain that they are part of a text.
        ("a.csv", b'question,answer\n1+1, "2"\n', "quote"),
        ("a.tsv", b'question\tanswer\n1+1\t "2"\n', "quote"),
        ("a.csv", b'question,answer\n"say \\"hi\\"",2\n', "backslash"),
        ("a.tsv", b'question\tanswer\nsay \\"hi\\"\t2\n', "line 2: a backsl"),
        ("a.csv", b'question,answer\n"a \\"b\\" c",2\n', "expected"),
        ("a.tsv", b'question\tanswer\n"one" 1\t2\n', "expected"),
    ],
)
def test_uncertain_file_is_refused(tmp_path, name, content, reason):
    path = tmp_path / name
    path.write_bytes(content)
    with refused(path=path, part=reason, error=UnreadableFileError):
        read_pairs(path)


def texts(task, split):
    return [
        pair
        for part in task.examples(split).values()
        for pair in all_texts(part)
    ]


def test_missing_files_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("1\t2\n")
    for place in (tmp_path, tmp_path / "a.txt", tmp_path / "b.tsv"):
        with refused("data_dir"):
            TextPairsTask(place)


def questions(task, split):
    return {question for question, _ in texts(task, split)}


def test_split_is_a_share_chosen_by_the_seed(tmp_path):
    pairs = [(f"{n} + {n}", str(2 * n)) for n in range(2000)]
    path = write(tmp_path / "sums.tsv", pairs)
    task = TextPairsTask(path)
    train, test = texts(task, "train"), texts(task, "test")
    assert sorted(train + test) == sorted(pairs)
    assert 160 < len(test) < 240
    # It does not depend on the order of the file, but on the seed.
    again = TextPairsTask(write(path, pairs[::-1]))
    assert set(texts(again, "test")) == set(test)
    assert again.vocabulary == task.vocabulary
    more = TextPairsTask(path, test_share=0.5)
    assert 900 < len(texts(more, "test")) < 1100
    assert set(test) < set(texts(more, "test"))
    other = TextPairsTask(path, test_share=0.5, split_seed=1)
    assert not set(test) <= set(texts(other, "test"))
    assert not TextPairsTask(path, test_share=0).examples("test")


def test_split_of_a_question_never_changes(tmp_path):
    """Or questions that were trained on would be tested."""
    task = TextPairsTask(write(tmp_path / "a.tsv", PAIRS[:40]))
    held_out = {f"{n} + {n}" for n in (9, 11, 30, 32, 36)}
    assert questions(task, "test") == held_out
    before = {split: questions(task, split) for split in ("train", "test")}
    # With more lines and another file.
    write(tmp_path / "a.tsv", [*PAIRS[50:], *PAIRS[:40]])
    write(tmp_path / "b.tsv", PAIRS[30:60])
    task = TextPairsTask(tmp_path)
    for split, of_split in before.items():
        assert of_split < questions(task, split)
    assert not questions(task, "train") & questions(task, "test")


def test_fingerprint_is_of_every_pair_and_its_split(tmp_path):
    def fingerprint(pairs, **options):
        path = write(tmp_path / "a.tsv", pairs)
        return TextPairsTask(path, **options).fingerprints["a"]

    edited = [*PAIRS[:70], ("70 + 70", "141"), *PAIRS[71:]]
    assert fingerprint(PAIRS) == fingerprint(PAIRS)
    assert fingerprint(PAIRS) == fingerprint(PAIRS, vocabulary="mathematics")
    different = [
        fingerprint(PAIRS),
        fingerprint(edited),
        fingerprint(PAIRS[1:]),
        fingerprint(PAIRS, split_seed=1),
        fingerprint(PAIRS, test_share=0),
    ]
    assert len(set(different)) == len(different)
    assert "100 training and 0 test" in different[-1]


def test_groups_are_the_files(tmp_path):
    for name in ("b", "a"):
        write(tmp_path / f"{name}.csv", [(f"{name}{n}", "1") for n in range(9)])
    assert TextPairsTask(tmp_path).groups == ("a", "b")
    # Another table is not read.
    (tmp_path / "log.csv").write_text("epoch,loss\n1,0.5\n")
    assert TextPairsTask(tmp_path, ["b"]).groups == ("b",)
    with pytest.raises(UnreadableFileError):
        TextPairsTask(tmp_path)
    (tmp_path / "log.csv").unlink()
    for patterns, groups in (
        ([], ("a", "b")),
        (["all"], ("a", "b")),
        (["b*"], ("b",)),
    ):
        assert select_groups("text_pairs", tmp_path, patterns) == groups
    for call in (
        lambda: select_groups("text_pairs", tmp_path, ["c"]),
        lambda: TextPairsTask(tmp_path, ["c"]),
    ):
        with refused("module"):
            call()


LABELLED = [
    Pair("1 + 1", "2", "sums", "interpolate"),
    Pair("2 + 2", "4", "others", "interpolate"),
    Pair("3 + 3", "6", "sums", "interpolate"),
    Pair("9 + 9", "18", "sums", "extrapolate"),
]


def test_lines_may_have_modules_and_splits(tmp_path):
    path = tmp_path / "problems.jsonl"
    plain = Pair("1 + 1", "2")
    write_pairs(path, [plain])
    assert read_pairs(path) == [plain]
    write_pairs(path, LABELLED, source="these tests")
    assert json.loads(path.read_text().splitlines()[0])["source"]
    task = open_task("text_pairs", path, options=["vocabulary=mathematics"])
    assert task.groups == ("sums", "others")
    assert task.splits == ("interpolate", "extrapolate")
    found = task.examples("interpolate")
    assert all_texts(found["sums"]) == [("1 + 1", "2"), ("3 + 3", "6")]
    assert list(task.examples("extrapolate")) == ["sums"]
    assert task.examples("train") == {}
    assert select_groups("text_pairs", path, ["oth*"]) == ("others",)
    task = TextPairsTask(path, ["others"])
    assert (task.groups, task.splits) == (("others",), ("interpolate",))
    assert texts(task, "interpolate") == [("2 + 2", "4")]


def test_lines_may_say_what_trains(tmp_path):
    write_pairs(
        tmp_path / "a.jsonl",
        [Pair("1", "1", "a", "train"), Pair("2", "2", "a", "test")],
    )
    # Groups of several files, and of files that name none.
    write_pairs(tmp_path / "b.jsonl", [Pair("3", "3", "a", "train")])
    write(tmp_path / "c.csv", [("4", "4")])
    task = TextPairsTask(tmp_path, test_share=0)
    assert (task.groups, task.splits) == (("a", "c"), ("test",))
    train = {name: all_texts(e) for name, e in task.examples("train").items()}
    assert train == {"a": [("1", "1"), ("3", "3")], "c": [("4", "4")]}
    assert texts(task, "test") == [("2", "2")]


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        (["train", "train "], "'train '"),
        (["test", "Train"], "'Train'"),
        (["tain", "test"], "'tain'"),
        # One question in both.
        (["train", "dev", "test"], "'1 + 1'"),
        (["dev", ""], "'1 + 1'"),
    ],
)
def test_contradictory_splits_are_refused(tmp_path, labels, named):
    for number, label in enumerate(labels):
        # The first and the last label are of one question.
        question = f"{1 + number % (len(labels) - 1)} + 1"
        pairs = [Pair(question, "2", split=label)]
        write_pairs(tmp_path / f"{number}.jsonl", pairs)
    with refused("split", part=named):
        TextPairsTask(tmp_path)


def test_a_file_may_have_a_name_like_a_pattern(tmp_path):
    path = write(tmp_path / "pairs[1].csv", PAIRS)
    assert TextPairsTask(path).groups == ("pairs[1]",)


def test_vocabulary_is_that_of_the_pairs(tmp_path):
    path = write(tmp_path / "a.jsonl", [("né 日?", "🙂\n"), ("1", "2")])
    task = TextPairsTask(path)
    symbols = ("<pad>", "<start>", "<end>", *sorted("né 日?🙂\n12"))
    assert task.vocabulary == symbols
    config = task.adapted(PRESETS["tp_transformer_tiny"])
    assert config.vocabulary == symbols
    assert config.vocabulary_size == len(symbols)


def test_vocabulary_of_the_model_is_refused(tmp_path):
    task = TextPairsTask(write(tmp_path / "a.tsv"))
    config = PRESETS["tp_transformer_tiny"]
    with refused("vocabulary"):
        task.adapted(config.replace(vocabulary="mathematics_words"))
    assert task.adapted(task.adapted(config)) == task.adapted(config)


def test_vocabulary_may_be_given(tmp_path):
    path = write(tmp_path / "a.tsv")
    for name, symbols in VOCABULARIES.items():
        assert TextPairsTask(path, vocabulary=name).vocabulary == symbols
    symbols = MATHEMATICS_VOCABULARY[::-1]
    task = TextPairsTask(path, vocabulary=symbols)
    assert task.vocabulary == symbols
    assert sorted(texts(task, "train") + texts(task, "test")) == sorted(PAIRS)
    characters = tmp_path / "characters.txt"
    characters.write_text("0123456789 +z\n")
    task = TextPairsTask(path, vocabulary=str(characters))
    assert task.vocabulary[3:] == tuple(sorted("0123456789 +z"))
    characters.write_text("0123456789")
    with refused(part="' '"):
        TextPairsTask(path, vocabulary=str(characters))


def test_options_are_parsed(tmp_path):
    path = write(tmp_path / "a.tsv")
    options = ["test_share=0.3", "split_seed=4", "vocabulary=mathematics"]
    task = open_task("text_pairs", path, options=options)
    expected = TextPairsTask(path, test_share=0.3, split_seed=4)
    assert texts(task, "test") == texts(expected, "test") != []
    assert task.vocabulary == MATHEMATICS_VOCABULARY
    for wrong, field in (
        (["share=0.3"], "dataset_options"),
        (["test_share=many"], "dataset_options"),
        (["test_share=1.5"], "test_share"),
    ):
        with refused(field):
            open_task("text_pairs", path, options=wrong)
    with refused("dataset_options"):
        open_task("mathematics_dataset", tmp_path, ["numbers__gcd"], options)


COMMANDS = [
    Pair(f"jump  {n} times", "\tI_JUMP " * n, "a", "train") for n in range(1, 9)
] + [Pair("jump 99 times", "I_JUMP", "a", "test")]


def test_tokens_may_be_words(tmp_path):
    path = tmp_path / "a.jsonl"
    write_pairs(path, COMMANDS)
    task = open_task("text_pairs", path, options=["tokens=words"])
    # Of the training's pairs.
    words = ("<words>", *"12345678", "I_JUMP", "jump", "times")
    assert task.vocabulary[3:] == words
    assert texts(task, "train")[1] == ("jump 2 times", "I_JUMP I_JUMP")
    assert texts(task, "test") == [("jump 99 times", "I_JUMP")]
    config = task.adapted(PRESETS["tp_transformer_tiny"])
    assert config.vocabulary == task.vocabulary
    # A question with another word is one that the model cannot read.
    examples = task.examples("test")["a"]
    assert len(readable_examples(examples, config)) == 0
    examples = task.examples("train")["a"]
    assert len(readable_examples(examples, config)) == 8
    assert examples.lengths([1]).tolist() == [[3, 2]]
    assert len(np.unique(question_keys(examples, 0))) == 8
    with refused("dataset_options"):
        readable_examples(examples, PRESETS["tp_transformer_tiny"])


def test_words_may_be_given(tmp_path):
    path = write(tmp_path / "a.tsv")
    words = tmp_path / "words.txt"
    words.write_text("+ \n" + "\n".join(map(str, range(200))))
    task = TextPairsTask(path, vocabulary=str(words), tokens="words")
    assert len(task.vocabulary) == 205
    for symbols in (task.vocabulary, [*map(str, range(200)), "+"]):
        other = TextPairsTask(path, vocabulary=symbols, tokens="words")
        assert other.vocabulary == task.vocabulary
    words.write_text("+ 1 2 3")
    with refused(part="'0'"):
        TextPairsTask(path, vocabulary=str(words), tokens="words")


@pytest.mark.parametrize("pair", [("a", " \xa0"), ("\t", "a"), ("<pad>", "a")])
def test_texts_without_words_are_refused(tmp_path, pair):
    path = write(tmp_path / "a.jsonl", [("a", "a"), pair])
    with refused(part=repr(pair[pair[0] == "a"])):
        TextPairsTask(path, test_share=0, tokens="words")


def test_blanks_make_no_other_question(tmp_path):
    write_pairs(tmp_path / "a.jsonl", [Pair("a b", "1", "a", "train")])
    write_pairs(tmp_path / "b.jsonl", [Pair("a  b", "1", "a", "test")])
    assert TextPairsTask(tmp_path).splits == ("test",)
    with refused("split"):
        TextPairsTask(tmp_path, tokens="words")
