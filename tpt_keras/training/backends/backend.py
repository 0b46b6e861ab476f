"""The interface of the backends, and the devices and workers of a training."""

import contextlib
import json
import os
from typing import Any

from tpt_keras.errors import UsageError


class Backend:
    """The step of a `Trainer`, and the devices and processes that make it.

    The defaults are those of one device and one process.

    Args:
        strategy: What `make_strategy` returned. Defaults to the strategy of
            the current scope.
    """

    num_replicas = 1  # devices that a batch is distributed over
    num_workers = 1  # processes that train together
    is_chief = True  # whether this process writes the files of a training

    def __init__(self, strategy: Any = None) -> None:
        self.strategy = strategy

    def scope(self) -> contextlib.AbstractContextManager:
        """Returns the scope to make and to assign variables in."""
        return contextlib.nullcontext()

    def broadcast(self, number: int) -> int:
        """Sends the chief's integer to all processes of a training.

        It is a barrier: all processes have to call it, and none returns before.
        """
        return number

    def feed(self, trainer, batches, start_step, num_epochs):
        """Returns batches, placed on the devices, for `fit` or `evaluate`."""
        raise NotImplementedError

    def compile_train_step(self, trainer):
        """Returns the step of a compiled `Trainer` for `fit`."""
        raise NotImplementedError

    def compile_test_step(self, trainer):
        """Returns the step of a compiled `Trainer` for `evaluate`."""
        raise NotImplementedError

    def begin_epoch(self) -> None:
        """Forgets what it kept of the epoch before."""


def read_workers() -> tuple[list[str], int]:
    """Reads the addresses of all workers, the chief first, from TF_CONFIG.

    Returns:
        List of addresses, and the index of this worker.

    Raises:
        UsageError: If TF_CONFIG is missing or damaged, or its task is not one
            of the workers.
    """
    try:
        config = json.loads(os.environ["TF_CONFIG"])
        cluster, task = config["cluster"], config["task"]
        workers = {
            (job, index): address
            for job in ("chief", "worker")
            for index, address in enumerate(cluster.get(job, ()))
        }
        number = list(workers).index((task["type"], int(task["index"])))
    except (AttributeError, LookupError, TypeError, ValueError):
        raise UsageError(
            "The variable TF_CONFIG is missing or damaged. The "
            "`distribution` multi_worker_mirrored needs it on every machine: "
            "the addresses of all workers and the index of this one. See "
            "docs/training.md.",
            field="distribution",
        ) from None
    return list(workers.values()), number


def chosen_gpus(gpus: list, num_gpus: int | None) -> list:
    """Returns the first `num_gpus` of this machine's GPUs, by default all."""
    if num_gpus is not None and not 0 <= num_gpus <= len(gpus):
        raise UsageError(
            f"This machine has {len(gpus)} GPUs. Received: `num_gpus` "
            f"{num_gpus}.",
            field="num_gpus",
        )
    return gpus[:num_gpus]
