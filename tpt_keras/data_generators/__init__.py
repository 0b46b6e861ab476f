"""Datasets as tasks: their examples, token caches and batches."""

import inspect
from collections.abc import Sequence
from typing import Any

from tpt_keras.data_generators.mathematics.stream import MathematicsStreamTask
from tpt_keras.data_generators.mathematics.task import MathematicsTask
from tpt_keras.data_generators.mathematics.task import StockMathematicsTask
from tpt_keras.data_generators.scan import ScanTask
from tpt_keras.data_generators.task import Task
from tpt_keras.data_generators.text_pairs import TextPairsTask
from tpt_keras.data_generators.variable_binding import VariableBindingTask
from tpt_keras.errors import check_choice
from tpt_keras.settings import parse_items
from tpt_keras.typing import StrPath

__all__ = [
    "TASKS",
    "MathematicsStreamTask",
    "MathematicsTask",
    "ScanTask",
    "StockMathematicsTask",
    "Task",
    "TextPairsTask",
    "VariableBindingTask",
    "open_task",
    "select_groups",
    "training_task",
]

# Each row is a task. Its `name` is the value of the field `dataset`.
TASKS = {
    task.name: task
    for task in (
        MathematicsTask,
        MathematicsStreamTask,
        StockMathematicsTask,
        TextPairsTask,
        ScanTask,
        VariableBindingTask,
    )
}


def open_task(
    name: str,
    data_dir: StrPath,
    groups: Sequence[str] = (),
    options: Sequence[str] = (),
) -> Task:
    """Opens a task by name.

    Args:
        name: A name of `TASKS`.
        data_dir: The task's folder or file.
        groups: Names of groups, patterns such as `"numbers__*"`, or `"all"`.
        options: Further arguments of the task, as texts: `"test_share=0.2"`.

    Returns:
        A `Task`.

    Raises:
        UsageError: If a name or an option is unknown, or the data is missing
            or damaged.

    Example:

    ```python
    task = open_task("mathematics_dataset", "data", ["numbers__gcd"])
    for group, examples in task.examples("train").items():
        print(group, len(examples))
    ```
    """
    check_choice("dataset", name, TASKS)
    # Options have the types of their defaults.
    kinds = {
        name: type(parameter.default)
        for name, parameter in inspect.signature(TASKS[name]).parameters.items()
        if name not in ("data_dir", "groups")
    }
    parsed = parse_items("dataset_options", options, kinds)
    return TASKS[name](data_dir, groups, **parsed)


def training_task(config: Any) -> Task:
    """Opens the task of a `TrainingConfig`; see `open_task`."""
    data = config.data
    return open_task(
        data.dataset, data.data_dir, data.modules, data.dataset_options
    )


def select_groups(
    name: str, data_dir: StrPath, patterns: Sequence[str]
) -> tuple[str, ...]:
    """Selects groups of a task by name; see `Task.select_groups`."""
    check_choice("dataset", name, TASKS)
    return TASKS[name].select_groups(data_dir, patterns)
