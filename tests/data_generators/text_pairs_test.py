import csv
import io
import json
import pathlib
import tempfile

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from tests.data_generators.files import all_texts
from tpt_keras.data_generators import open_task
from tpt_keras.data_generators import select_groups
from tpt_keras.data_generators.text_pairs import TextPairsTask
from tpt_keras.data_generators.text_pairs import read_pairs
from tpt_keras.errors import UnreadableFileError
from tpt_keras.errors import UsageError
from tpt_keras.models import PRESETS
from tpt_keras.tokenizers.character_tokenizer import MATHEMATICS_VOCABULARY
from tpt_keras.tokenizers.character_tokenizer import VOCABULARIES

PAIRS = [(f"{n} + {n}", str(n + n)) for n in range(100)]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9)


def as_csv(pairs):
    file = io.StringIO(newline="")
    csv.writer(file).writerows(pairs)
    return file.getvalue()


WRITERS = {
    ".tsv": lambda pairs: "".join(f"{q}\t{a}\n" for q, a in pairs),
    ".csv": as_csv,
    ".jsonl": lambda pairs: "".join(
        json.dumps({"question": q, "answer": a}) + "\n" for q, a in pairs
    ),
}


def write(path, pairs=PAIRS):
    path.write_text(WRITERS[path.suffix](pairs), "utf-8", newline="")
    return path


def texts(task, split):
    return [
        pair
        for part in task.examples(split).values()
        for pair in all_texts(part)
    ]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
@settings(max_examples=30)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=9))
def test_pairs_are_read_as_written(suffix, pairs):
    if [text.strip().lower() for text in pairs[0]] == ["question", "answer"]:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, f"a{suffix}")
        assert read_pairs(write(path, pairs)) == pairs


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_header_mark_and_blank_lines_are_skipped(tmp_path, suffix):
    comma = "," if suffix == ".csv" else "\t"
    path = tmp_path / f"a{suffix}"
    lines = ["\ufeffQuestion,Answer", "1+1,2", "", "2+2,4", ""]
    path.write_text("\r\n".join(lines).replace(",", comma), newline="")
    assert read_pairs(path) == [("1+1", "2"), ("2+2", "4")]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.tsv", b"1+1\t2\n2+2\n", "line 2"),
        ("a.tsv", b"1+1\t2\t3\n", "line 1"),
        ("a.tsv", b"1+1\t\n", "line 1"),
        ("a.tsv", b"1+1\t\xff\n", ""),
        ("a.csv", b'1+1,2\n2+2,"4\n', ""),
        ("a.csv", b"1+1;2\n", "line 1"),
        ("a.jsonl", b'{"question": "1+1"}\n', "line 1"),
        ("a.jsonl", b'{"question": "1+1", "answer": 2}\n', "line 1"),
        ("a.jsonl", b"[1, 2]\n", "line 1"),
        ("a.jsonl", b"{\n", ""),
    ],
)
def test_unreadable_file_is_refused(tmp_path, name, content, reason):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UnreadableFileError) as error:
        TextPairsTask(path)
    assert error.value.path == str(path)
    assert reason in str(error.value)


@pytest.mark.parametrize("content", ["", "\n\n", "question\tanswer\n"])
def test_file_without_pairs_is_refused(tmp_path, content):
    path = tmp_path / "a.tsv"
    path.write_text(content)
    with pytest.raises(UsageError) as error:
        TextPairsTask(path)
    assert error.value.path == str(path)


def test_missing_files_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("1\t2\n")
    for place in (tmp_path, tmp_path / "a.txt", tmp_path / "b.tsv"):
        with pytest.raises(UsageError) as error:
            TextPairsTask(place)
        assert error.value.field == "data_dir"
    write(tmp_path / "b.tsv")
    write(tmp_path / "b.csv")
    with pytest.raises(UsageError) as error:
        TextPairsTask(tmp_path)
    assert error.value.field == "data_dir"


def test_split_is_a_share_chosen_by_the_seed(tmp_path):
    path = write(tmp_path / "sums.tsv")
    task = TextPairsTask(path)
    train, test = texts(task, "train"), texts(task, "test")
    assert sorted(train + test) == sorted(PAIRS)
    assert len(test) == 10
    # It does not depend on the order of the file, but on the seed.
    again = TextPairsTask(write(path, PAIRS[::-1]))
    assert set(texts(again, "test")) == set(test)
    assert again.vocabulary == task.vocabulary
    other = TextPairsTask(path, test_share=0.5, split_seed=1)
    assert len(texts(other, "test")) == 50
    assert not set(test) <= set(texts(other, "test"))
    assert not TextPairsTask(path, test_share=0).examples("test")


def test_repeated_question_is_on_one_side(tmp_path):
    """Also if it occurs in several files."""
    write(tmp_path / "a.tsv", PAIRS)
    write(tmp_path / "b.tsv", [(question, "other") for question, _ in PAIRS])
    task = TextPairsTask(tmp_path, test_share=0.5)
    train, test = ({q for q, _ in texts(task, s)} for s in ("train", "test"))
    assert not train & test
    assert {g: len(e) for g, e in task.examples("test").items()} == {
        "a": 50,
        "b": 50,
    }
    # The choice is that of the whole folder.
    alone = TextPairsTask(tmp_path, ["b"], test_share=0.5)
    assert {q for q, _ in texts(alone, "test")} == test


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_pairs_are_split(tmp_path, count):
    task = TextPairsTask(write(tmp_path / "a.tsv", PAIRS[:count]))
    assert len(texts(task, "test")) == int(count > 1)
    assert len(texts(task, "train")) == count - int(count > 1)


def test_groups_are_the_files(tmp_path):
    for name in ("b", "a"):
        write(tmp_path / f"{name}.csv", [(f"{name}{n}", "1") for n in range(9)])
    assert TextPairsTask(tmp_path).groups == ("a", "b")
    assert TextPairsTask(tmp_path, ["b"]).groups == ("b",)
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
        with pytest.raises(UsageError) as error:
            call()
        assert error.value.field == "module"


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
    with pytest.raises(UsageError) as caught:
        task.adapted(config.replace(vocabulary="mathematics_words"))
    assert caught.value.field == "vocabulary"
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
    with pytest.raises(UsageError) as error:
        TextPairsTask(path, vocabulary=str(characters))
    assert "' '" in str(error.value)


def test_options_are_parsed(tmp_path):
    path = write(tmp_path / "a.tsv")
    options = ["test_share=0.3", "split_seed=4", "vocabulary=mathematics"]
    task = open_task("text_pairs", path, options=options)
    assert len(texts(task, "test")) == 30
    assert task.vocabulary == MATHEMATICS_VOCABULARY
    for wrong, field in (
        (["share=0.3"], "dataset_options"),
        (["test_share=many"], "dataset_options"),
        (["test_share=1.5"], "test_share"),
    ):
        with pytest.raises(UsageError) as error:
            open_task("text_pairs", path, options=wrong)
        assert error.value.field == field
    with pytest.raises(UsageError) as error:
        open_task("mathematics_dataset", tmp_path, ["numbers__gcd"], options)
    assert error.value.field == "dataset_options"
