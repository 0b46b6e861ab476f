"""A user's own pairs of questions and answers as a task."""

import csv
import hashlib
import json
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpt_keras.data_generators.examples import ArrayExamples
from tpt_keras.data_generators.examples import Examples
from tpt_keras.data_generators.task import TRAIN
from tpt_keras.data_generators.task import Task
from tpt_keras.data_generators.task import matching_groups
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.files import reading
from tpt_keras.tokenizers.character_tokenizer import VOCABULARIES
from tpt_keras.tokenizers.character_tokenizer import vocabulary_of
from tpt_keras.typing import StrPath

if TYPE_CHECKING:
    from tpt_keras.models.configs import SequenceToSequenceConfig

TEST = "test"
_COLUMNS = ["question", "answer"]
_ADVICE = "Every line needs a question and its answer."


class TextPairsTask(Task):
    """Pairs of a question and its answer from TSV, CSV or JSON-lines files.

    A TSV or CSV file has two columns and may have the header `question`,
    `answer`. A JSON-lines file (.jsonl) has an object with these two keys in
    every line. All files are UTF-8. The pairs are held in memory, one byte a
    character for vocabularies of up to 256 symbols.

    Each file is a group, named after the file without its suffix. A share of
    the questions, chosen by a seed, is the split `test`. A question that occurs
    several times is on one side.

    Args:
        data_dir: A file, or a folder of files.
        groups: Names of groups, or patterns. Defaults to all.
        test_share: Share of the questions that is held out for evaluation.
        split_seed: Seed of the choice.
        vocabulary: The symbols, each at its token id, for example those of a
            tokenizer; `"mathematics"` for those of the Mathematics Dataset, or
            `"mathematics_words"` with its words; or the path of a text file,
            whose characters are taken. Defaults to the characters of the
            pairs.

    Raises:
        UsageError: If a file is missing or unreadable, there are no pairs, or
            a character is not in the vocabulary.

    Example:

    ```python
    task = TextPairsTask("capitals.tsv", test_share=0.2)
    for question, answer in task.examples("test")["capitals"].texts([0, 1]):
        print(question, answer)
    ```
    """

    name = "text_pairs"
    splits = (TEST,)

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
        self.groups = self.select_groups(data_dir, groups)
        files = _files(data_dir)
        pairs = {group: read_pairs(path) for group, path in files.items()}
        # The split is that of the whole folder.
        held_out = _held_out(pairs, test_share, split_seed)
        pairs = {group: pairs[group] for group in self.groups}
        self.vocabulary = _vocabulary(vocabulary, pairs)
        self._examples = {TRAIN: {}, TEST: {}}
        for group, of_group in pairs.items():
            parts = {TRAIN: [], TEST: []}
            for pair in of_group:
                parts[TEST if pair[0] in held_out else TRAIN].append(pair)
            for split, part in parts.items():
                if part:
                    self._examples[split][group] = ArrayExamples.from_texts(
                        part, self.vocabulary
                    )

    @staticmethod
    def select_groups(
        data_dir: StrPath, patterns: Sequence[str]
    ) -> tuple[str, ...]:
        return matching_groups(patterns or ["all"], _files(data_dir))

    def examples(self, split: str) -> dict[str, Examples]:
        check_choice("split", split, self._examples)
        return self._examples[split]

    def adapted(
        self, model_config: "SequenceToSequenceConfig"
    ) -> "SequenceToSequenceConfig":
        given = model_config.vocabulary
        if given not in (type(model_config)().vocabulary, self.vocabulary):
            raise UsageError(
                f"The `vocabulary` of pairs of text is one of "
                f"`dataset_options` (vocabulary={given}).",
                field="vocabulary",
            )
        return model_config.replace(vocabulary=self.vocabulary)


def read_pairs(path: pathlib.Path) -> list[tuple[str, str]]:
    """Reads the pairs of one file, whose suffix is a key of `READERS`."""
    pairs = []
    with (
        reading(path, _ADVICE),
        path.open(encoding="utf-8-sig", newline="") as file,
    ):
        for number, row in READERS[path.suffix.lower()](file):
            if len(row) != 2 or not all(
                isinstance(text, str) and text for text in row
            ):
                raise ValueError(f"line {number} is not a pair of texts")
            pairs.append(tuple(row))
    if pairs and [text.strip().lower() for text in pairs[0]] == _COLUMNS:
        del pairs[0]
    if not pairs:
        raise UsageError(
            f"The file {str(path)!r} holds no pairs. {_ADVICE}", path=path
        )
    return pairs


def _tsv_rows(file):
    for number, line in enumerate(file, 1):
        if line.strip():
            yield number, line.rstrip("\r\n").split("\t")


def _csv_rows(file):
    rows = csv.reader(file, strict=True)
    for row in rows:
        if row:
            yield rows.line_num, row


def _json_rows(file):
    for number, line in enumerate(file, 1):
        if line.strip():
            pair = json.loads(line)
            is_pair = isinstance(pair, dict) and pair.keys() >= set(_COLUMNS)
            yield number, [pair[c] for c in _COLUMNS] if is_pair else []


# Each reads an open file and yields line numbers and columns.
READERS = {".tsv": _tsv_rows, ".csv": _csv_rows, ".jsonl": _json_rows}


def _files(data_dir):
    """The files of a task by the names of their groups."""
    path = pathlib.Path(data_dir)
    paths = sorted(path.iterdir()) if path.is_dir() else [path]
    paths = [each for each in paths if each.suffix.lower() in READERS]
    if not paths or not paths[0].exists():
        raise UsageError(
            f"{str(data_dir)!r} is neither a file nor a folder of pairs of "
            f"texts ({', '.join(READERS)}). Name one as `data_dir`.",
            field="data_dir",
            path=data_dir,
        )
    files = {each.stem: each for each in paths}
    if len(files) < len(paths):
        raise UsageError(
            f"Two files of {str(data_dir)!r} have the same name but for their "
            "suffixes. Rename one.",
            field="data_dir",
            path=data_dir,
        )
    return files


def _held_out(pairs, share, seed):
    """The set of questions for the test."""
    questions = {question for part in pairs.values() for question, _ in part}

    def place(question):
        return hashlib.blake2b(f"{seed}/{question}".encode()).digest()

    count = round(share * len(questions))
    if share and len(questions) > 1:
        count = max(count, 1)
    return set(sorted(questions, key=place)[:count])


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
        text for part in pairs.values() for pair in part for text in pair
    )
