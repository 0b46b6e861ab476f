import json

import pytest

from tests.data_generators.files import all_texts
from tpt_keras.data_generators import open_task
from tpt_keras.data_generators.problem_file import Problem
from tpt_keras.data_generators.problem_file import read_answers
from tpt_keras.data_generators.problem_file import read_problem_file
from tpt_keras.data_generators.problem_file import write_problem_file
from tpt_keras.errors import UnreadableFileError
from tpt_keras.errors import UsageError

PROBLEMS = [
    Problem("1 + 1", "2", "numbers__a", "interpolate"),
    Problem("2 + 2", "4", "numbers__b", "interpolate"),
    Problem("3 + 3", "6", "numbers__a", "interpolate"),
    Problem("9 + 9", "18", "numbers__a", "extrapolate"),
]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "problems.jsonl"
    write_problem_file(path, PROBLEMS, source="these tests")
    return path


def test_modules_and_splits_are_those_of_the_file(path):
    assert read_problem_file(path) == PROBLEMS
    assert json.loads(path.read_text().splitlines()[0])["source"]
    task = open_task("problem_file", path)
    assert task.groups == ("numbers__a", "numbers__b")
    assert task.splits == ("interpolate", "extrapolate")
    found = task.examples("interpolate")
    assert all_texts(found["numbers__a"]) == [("1 + 1", "2"), ("3 + 3", "6")]
    assert list(task.examples("extrapolate")) == ["numbers__a"]
    task = open_task("problem_file", path, ["*b"])
    assert (task.groups, task.splits) == (("numbers__b",), ("interpolate",))
    with pytest.raises(UsageError) as error:
        task.examples("train")
    assert error.value.field == "split"


@pytest.mark.parametrize(
    "content", ["", "[]\n", '{"question": "1 + 1", "answer": "2"}\n', "{"]
)
def test_damaged_problems(path, content):
    path.write_text(content)
    with pytest.raises(UnreadableFileError) as error:
        open_task("problem_file", path)
    assert error.value.path == str(path)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        # A model may say nothing, or something strange.
        ("theirs.txt", ["2", "", "6\u2028", "17"]),
        (
            "theirs.jsonl",
            [
                '{"question": "1 + 1", "answer": "2"}',
                '{"answer": ""}',
                '{"answer": "6\\u2028", "confidence": 0.5}',
                '{"answer": "17"}',
            ],
        ),
    ],
)
def test_answers_belong_to_problems_line_by_line(tmp_path, name, lines):
    path = tmp_path / name
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    answers = dict(zip(PROBLEMS, ["2", "", "6\u2028", "17"]))
    assert read_answers(path, PROBLEMS) == answers
    with pytest.raises(UsageError) as error:
        read_answers(path, PROBLEMS[:3])
    assert error.value.field == "answers"


@pytest.mark.parametrize(
    "line",
    [
        '{"answer": 2}',
        "2",
        '{"question": "2 + 2", "answer": "2"}',
        '{"answer": "\\ud83d"}',
    ],
)
def test_damaged_answers(tmp_path, line):
    path = tmp_path / "theirs.jsonl"
    path.write_text(line)
    with pytest.raises(UnreadableFileError) as error:
        read_answers(path, PROBLEMS[:1])
    assert error.value.path == str(path)
