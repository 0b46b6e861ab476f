"""A user's own pairs of questions and answers as a task."""

import hashlib
import logging
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpt_keras.data_generators.examples import ArrayExamples
from tpt_keras.data_generators.examples import Examples
from tpt_keras.data_generators.pair_files import DELIMITERS
from tpt_keras.data_generators.pair_files import module_names
from tpt_keras.data_generators.pair_files import read_pairs
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

_log = logging.getLogger(__name__)


class TextPairsTask(Task):
    """Pairs of a question and its answer from TSV, CSV or JSON-lines files.

    A TSV or CSV file has two columns. A header, `question` and `answer`, names
    them, in either order. Without one, the question is first. A JSON-lines file
    (.jsonl) has an object with these two keys in every line. All files are
    UTF-8. A file that may be read in several ways is refused. The pairs are
    held in memory, one byte a character for vocabularies of up to 256 symbols.

    Each file is a group, named after the file without its suffix. About
    `test_share` of the questions are the split `test`. The hash of a question
    and the seed decide, so that a question stays on its side when pairs or
    files are added.

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
        files = _files_of_groups(data_dir)
        self.groups = matching_groups(groups or ["all"], files)
        chosen = set().union(*(files[group] for group in self.groups))
        pairs = {group: [] for group in self.groups}
        for path in _files(data_dir).values():
            if path not in chosen:
                _log.info("Not read, because not chosen: %s", path)
                continue
            for pair in read_pairs(path):
                pairs.get(pair.module or path.stem, []).append(pair)
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
    def select_groups(
        data_dir: StrPath, patterns: Sequence[str]
    ) -> tuple[str, ...]:
        return matching_groups(patterns or ["all"], _files_of_groups(data_dir))

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


def _files_of_groups(data_dir):
    """Lists of the files of each group, which is a file if it names none."""
    files = {}
    for name, path in _files(data_dir).items():
        for group in module_names(path) or [name]:
            files.setdefault(group, []).append(path)
    return files


def _files(data_dir):
    """The files of a task by their names without suffixes."""
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
    files = {each.stem: each for each in paths}
    if len(files) < len(paths):
        raise UsageError(
            f"Two files of {str(data_dir)!r} have the same name but for their "
            "suffixes. Rename one.",
            field="data_dir",
            path=data_dir,
        )
    return files


def _is_held_out(question, share, seed):
    """Decides by a question's own hash, whatever else is in the files."""
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
