import contextlib
from collections.abc import Callable
from typing import Any

from tpt_keras.data_generators.batches import NumberedBatches


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

    def feed(
        self,
        trainer: Any,
        batches: NumberedBatches,
        start_step: int,
        num_epochs: int | None,
    ) -> Any:
        """Returns batches, placed on the devices, for `fit` or `evaluate`."""
        raise NotImplementedError

    def compile_train_step(self, trainer: Any) -> Callable:
        """Returns the step of a compiled `Trainer` for `fit`."""
        raise NotImplementedError

    def compile_test_step(self, trainer: Any) -> Callable:
        """Returns the step of a compiled `Trainer` for `evaluate`."""
        raise NotImplementedError

    def begin_epoch(self) -> None:
        """Forgets what it kept of the epoch before."""
