"""Problems of a task, for the commands that need some."""

import dataclasses
import functools

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_positive_integer


@dataclasses.dataclass(frozen=True)
class Problems:
    """The problems of a command; the fields are its flags.

    Args:
        modules: Names of modules, patterns (numbers__*), or all.
        data_dir: Folder that prepare_data filled, or the file or folder of
            text pairs.
        dataset: Name of the dataset.
        dataset_options: Options of the dataset, those of the training:
            test_share=0.2,split_seed=1.
        split: Name of the split. Default: the task's first for evaluation.
    """

    modules: tuple = ()
    data_dir: str = "data"
    dataset: str = "mathematics_dataset"
    dataset_options: tuple = ()
    split: str = ""

    @functools.cached_property
    def task(self):
        """The `Task` of the problems."""
        from tpt_keras.data_generators import open_task

        return open_task(
            self.dataset, self.data_dir, self.modules, self.dataset_options
        )

    def read(self, count):
        """Reads the first problems of every module, at most `count`.

        Returns a dict from each module that has the split to the lists of its
        questions and of their answers.
        """
        import numpy as np

        check_positive_integer("count", count)
        split = self.split or self.task.splits[0]
        problems = {}
        for group, examples in self.task.examples(split).items():
            texts = examples.texts(np.arange(min(count, len(examples))))
            problems[group] = [list(column) for column in zip(*texts)]
        if not problems:
            raise UsageError(
                f"None of the modules {', '.join(self.task.groups)} has "
                f"problems of the `split` {split!r}.",
                field="split",
            )
        return problems
