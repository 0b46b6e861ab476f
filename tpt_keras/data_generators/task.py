"""Tasks: datasets of questions that a model learns to answer."""

import fnmatch
import functools
import hashlib
from collections.abc import Collection
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpt_keras.data_generators.batches import ProblemBatches
from tpt_keras.data_generators.examples import ArrayExamples
from tpt_keras.data_generators.examples import ExampleMixture
from tpt_keras.data_generators.examples import Examples
from tpt_keras.data_generators.examples import ExampleView
from tpt_keras.data_generators.examples import permute
from tpt_keras.data_generators.examples import question_keys
from tpt_keras.data_generators.examples import set_apart
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.tokenizers.character_tokenizer import vocabulary_of
from tpt_keras.typing import StrPath

# The name of the training examples as a split.
TRAIN = "train"

# The fields of a model's longest texts.
_LIMITS = ("max_question_length", "max_answer_length")
# Examples of a group that its fingerprint is made of.
_FINGERPRINTED = 64


class Task:
    """A dataset of questions and answers, as a task to learn.

    A subclass has the attributes, the method `select_groups`, and `examples` of
    its own or `_examples`, a dict from splits to what `examples` returns. It is
    made by `open_task` and has a row in `TASKS`.

    Attributes:
        name: The task's name in `TASKS`.
        groups: Names of the groups of examples, such as modules. Accuracies
            are reported group by group.
        splits: Names of the splits for evaluation.
        vocabulary: The symbols of the examples, each at its token id.
        kept: Questions that are never set apart for validation.
    """

    name: str | None = None
    groups: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    vocabulary: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    _examples: dict[str, dict[str, Examples]]

    @staticmethod
    def select_groups(
        data_dir: StrPath, patterns: Sequence[str]
    ) -> tuple[str, ...]:
        """Selects groups by names, patterns such as `"numbers__*"`, or `"all"`.

        Raises:
            UsageError: If a pattern fits no group, or none is given and the
                task cannot choose.
        """
        raise NotImplementedError

    def examples(self, split: str) -> dict[str, Examples]:
        """The `Examples` of a split, as a dict of the groups that have any.

        The split is `"train"` or one of `splits`.

        Raises:
            UsageError: If there is no such split.
        """
        check_choice("split", split, self._examples)
        return self._examples[split]

    def training_batches(
        self, batches: ProblemBatches, weights: Sequence[float], config: Any
    ) -> ProblemBatches:
        """The batches of a training, by default those of the examples.

        A task whose training never repeats an example has others.

        Args:
            batches: `ProblemBatches` of training examples.
            weights: The groups' shares in them.
            config: A `TrainingConfig`.
        """
        return batches

    def adapted(self, model_config: Any) -> Any:
        """Returns a model's configuration, adapted to the task."""
        return model_config

    @functools.cached_property
    def fingerprints(self) -> dict[str, str]:
        """For each group, a hash of the number and of some of its examples."""
        fingerprints = {}
        for group, examples in self.examples(TRAIN).items():
            count = len(examples)
            indices = np.linspace(0, count - 1, _FINGERPRINTED, dtype=int)
            columns = zip(*examples.texts(indices))
            texts = [[text.encode() for text in column] for column in columns]
            content = repr((count, texts)).encode()
            fingerprints[group] = hashlib.sha256(content).hexdigest()[:16]
        return fingerprints

    def sample(
        self, split: str, count: int | None = None
    ) -> dict[str, Examples]:
        """Reads a fixed sample of every group of a split.

        A sample holds the first examples of a random order, so a larger one
        contains a smaller one. A group has at most `count` examples in it, by
        default all of them. A sample of the training examples has no question
        twice. It starts with the largest hashes of questions, because a
        training of seed 0 sets the smallest apart for validation.
        """
        sample: dict[str, Examples] = {}
        for group, examples in self.examples(split).items():
            # The second seed keeps this order apart from those of the epochs.
            rows = np.arange(len(examples))[:count]
            rows = permute(rows, len(examples), (0, -1))
            if split == TRAIN:
                keys = question_keys(examples, seed=0)
                rows = np.unique(keys, return_index=True)[1][::-1][:count]
            sample[group] = ExampleView(examples, rows)
        return sample


class WordsTask(Task):
    """Base class of tasks whose pairs of words are made when they open.

    They have one group, of their own name. The `pairs` are a dict from the
    splits, the training first.
    """

    def __init__(
        self, groups: Sequence[str], pairs: dict[str, list[tuple[str, str]]]
    ) -> None:
        self.groups = self.select_groups("", groups)
        self.splits = tuple(pairs)[1:]
        texts = {text for part in pairs.values() for x in part for text in x}
        self.vocabulary = vocabulary_of(texts, tokens="words")
        self._examples, self._longest = {}, []
        for split, part in pairs.items():
            examples = ArrayExamples.from_texts(part, self.vocabulary)
            self._examples[split] = {self.groups[0]: examples}
            self._longest.append(examples.all_lengths.max(axis=0))

    @classmethod
    def select_groups(cls, data_dir, patterns):
        return matching_groups(patterns or ["all"], [cls.name])

    def adapted(self, model_config: Any) -> Any:
        """Gives a model the vocabulary, and room for the longest texts."""
        longest = np.max(self._longest, axis=0).tolist()
        limits = {
            name: max(getattr(model_config, name), length)
            for name, length in zip(_LIMITS, longest)
        }
        return model_config.replace(vocabulary=self.vocabulary, **limits)


def matching_groups(
    patterns: Sequence[str], names: Collection[str]
) -> tuple[str, ...]:
    """The names that fit any of the patterns."""
    for pattern in patterns:
        if not any(fits(name, [pattern]) for name in names):
            check_choice("module", pattern, names)
    return tuple(name for name in names if fits(name, patterns))


def fits(name: str, patterns: Sequence[str]) -> bool:
    """Returns `True` if a name fits any of the patterns, or one is `"all"`."""
    return name in patterns or any(
        pattern == "all" or fnmatch.fnmatch(name, pattern)
        for pattern in patterns
    )


def split_batches(task, model_config, config):
    """Cuts the training examples into training and validation batches.

    A hash of the question and the seed of the `TrainingConfig` decides which
    questions are set apart: no training example has one of them.
    """
    patterns = set(config.data.modules) - set(task.groups)
    if config.data.module_weights and patterns:
        raise UsageError(
            "`module_weights` belong to names in `modules`, not to patterns "
            f"({', '.join(sorted(patterns))}). Write the names, or take those "
            "of select_groups.",
            field="module_weights",
        )
    groups = task.examples(TRAIN)
    apart = -(-config.data.validation_examples // len(task.groups))
    seed = config.run.seed
    parts = [groups.get(group, ExampleMixture([])) for group in task.groups]
    training, validation = set_apart(parts, apart, seed, task.kept)
    for group, part in zip(task.groups, training):
        if not len(part):
            raise UsageError(
                f"{group} has no training problems beside the {apart} "
                "questions of each module that are set apart for validation. "
                "Prepare more problems, or lower `validation_examples`.",
                field="validation_examples",
            )
    shares = dict(zip(config.data.modules, config.data.module_weights))
    weights = [shares.get(group, 1.0) for group in task.groups]

    def batches(parts, weights=None):
        return ProblemBatches(
            ExampleMixture(parts, weights),
            model_config.make_tokenizer(),
            config.data.batch_size,
            seed,
            limits={name: getattr(model_config, name) for name in _LIMITS},
        )

    return (
        task.training_batches(batches(training, weights), weights, config),
        batches(validation),
    )
