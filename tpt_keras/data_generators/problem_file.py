"""A file of evaluation problems as a task, and others' answers to it."""

import json
import pathlib
import typing
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

from tpt_keras.data_generators.examples import ArrayExamples
from tpt_keras.data_generators.examples import Examples
from tpt_keras.data_generators.task import Task
from tpt_keras.data_generators.task import matching_groups
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.files import parse_json
from tpt_keras.files import reading
from tpt_keras.files import write_text
from tpt_keras.tokenizers.character_tokenizer import MATHEMATICS_VOCABULARY
from tpt_keras.typing import StrPath

_ADVICE = (
    "Every line needs the texts `question`, `answer`, `module` and `split`."
)


class Problem(typing.NamedTuple):
    """A question, its right answer, and where it belongs."""

    question: str
    answer: str
    module: str
    split: str


class ProblemFileTask(Task):
    """Evaluation problems of a JSON-lines file; its groups are modules.

    Every line is an object with the texts `question`, `answer`, `module` and
    `split`, and any others. There is nothing to train on.

    Args:
        data_dir: The file.
        groups: Names of modules, or patterns. Defaults to all of the file.

    Raises:
        UsageError: If the file is missing or damaged, a name is unknown, or a
            character is not in the vocabulary of the Mathematics Dataset.

    Example:

    ```python
    task = ProblemFileTask("problems.jsonl", ["numbers__gcd"])
    print(task.examples("interpolate")["numbers__gcd"].texts([0, 1]))
    ```
    """

    name = "problem_file"
    vocabulary = MATHEMATICS_VOCABULARY

    def __init__(self, data_dir: StrPath, groups: Sequence[str] = ()) -> None:
        self.problems = read_problem_file(data_dir)
        self.groups = _groups(self.problems, groups)
        pairs = {}
        for question, answer, module, split in self.problems:
            if module in self.groups:
                of_split = pairs.setdefault(split, {})
                of_split.setdefault(module, []).append((question, answer))
        self.splits = tuple(pairs)
        self._examples: dict[str, dict[str, Examples]] = {
            split: {
                module: ArrayExamples.from_texts(of_module, self.vocabulary)
                for module, of_module in of_split.items()
            }
            for split, of_split in pairs.items()
        }

    @staticmethod
    def select_groups(
        data_dir: StrPath, patterns: Sequence[str]
    ) -> tuple[str, ...]:
        return _groups(read_problem_file(data_dir), patterns)

    def examples(self, split: str) -> dict[str, Examples]:
        check_choice("split", split, self.splits)
        return self._examples[split]


def _groups(problems, patterns):
    modules = dict.fromkeys(problem.module for problem in problems)
    return matching_groups(patterns or ["all"], list(modules))


def write_problem_file(
    path: StrPath, problems: Iterable[Problem], **fields: Any
) -> None:
    """Writes a file of problems, the same bytes for the same arguments.

    Args:
        path: JSON-lines file to write.
        problems: `Problem`s.
        **fields: Further fields of every line.
    """
    lines = (
        json.dumps({**problem._asdict(), **fields}, ensure_ascii=False) + "\n"
        for problem in problems
    )
    write_text(path, "".join(lines))


def read_problem_file(path: StrPath) -> list[Problem]:
    """Reads the list of `Problem`s of a file."""
    problems = []
    with reading(path, _ADVICE):
        for number, line in enumerate(read_lines(path), 1):
            row = parse_json(line)
            problem = [row.get(name) for name in Problem._fields]
            if not all(isinstance(text, str) and text for text in problem):
                raise ValueError(f"line {number} is no problem")
            problems.append(Problem(*problem))
        if not problems:
            raise ValueError("it is empty")
    return problems


def read_answers(
    path: StrPath, problems: Sequence[Problem]
) -> dict[Problem, str]:
    """Reads the answers of any model to the problems of a file.

    Line by line they belong to the problems. A line of a JSON-lines file
    (.jsonl) is an object with the text `answer`, and may repeat the `question`,
    which is then compared. Of any other file, the line is the answer.

    Args:
        path: The file of answers.
        problems: The list of `Problem`s.

    Returns:
        Dict from `Problem`s to answers.

    Raises:
        UsageError: If the file is missing or damaged, or has another number of
            lines or other questions.
    """
    path = pathlib.Path(path)
    with reading(path, "It needs an answer for every line of the problems."):
        answers = read_lines(path)
        if path.suffix == ".jsonl":
            rows = [parse_json(line) for line in answers]
            answers = [row["answer"] for row in rows]
            for number, (row, problem) in enumerate(zip(rows, problems), 1):
                if row.get("question", problem.question) != problem.question:
                    raise ValueError(f"line {number} has another question")
                if not isinstance(row["answer"], str):
                    raise ValueError(f"the answer of line {number} is no text")
    if len(answers) != len(problems):
        raise UsageError(
            f"{str(path)!r} has {len(answers)} `answers`, and there are "
            f"{len(problems)} problems. Write one a line, in their order.",
            field="answers",
            path=path,
        )
    return dict(zip(problems, answers))


def read_lines(path: StrPath) -> list[str]:
    """Returns the lines of a file of JSON lines or of answers."""
    # Not `splitlines`, which knows more ends of a line.
    text = pathlib.Path(path).read_text(encoding="utf-8-sig")
    return text.removesuffix("\n").split("\n") if text else []
