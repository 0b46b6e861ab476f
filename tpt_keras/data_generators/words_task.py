from collections.abc import Sequence
from typing import Any

import numpy as np

from tpt_keras.data_generators.examples import ArrayExamples
from tpt_keras.data_generators.task import Task
from tpt_keras.data_generators.task import matching_groups
from tpt_keras.tokenizers.character_tokenizer import vocabulary_of


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
        names = ("max_question_length", "max_answer_length")
        longest = np.max(self._longest, axis=0).tolist()
        return model_config.replace(
            vocabulary=self.vocabulary,
            **{
                x: max(getattr(model_config, x), y)
                for x, y in zip(names, longest)
            },
        )
