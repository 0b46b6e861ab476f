import dataclasses

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names
from tpt_keras.errors import set_types

ON_NAN = ("stop", "rollback")


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """How a training is run: what may change from one run to the next.

    None of it changes what is learned, but for rounding, with two exceptions:
    `on_nan="rollback"` leaves out the batches that failed, and
    `max_steps_without_improvement` ends a training early.

    Args:
        gradient_accumulation_steps: Micro-batches that every batch is cut
            into, to take less memory.
        steps_per_execution: Optimizer steps that TensorFlow makes without
            coming back to Python.
        jit_compile: Whether TensorFlow shall compile the step with XLA, which
            does so anew for every length, and for one device alone. JAX does
            in any case.
        rematerialize: Whether to compute the cells' activations again in the
            backward pass, to take less memory.
        keep_checkpoints: Number of checkpoints to keep.
        on_nan: What to do when a loss is not finite: `"stop"`, or
            `"rollback"`, go on from the last checkpoint with other batches.
        max_steps_without_improvement: Steps without a better validation
            sequence accuracy after which a training ends. `0`: never.
        evaluation_examples: Problems of every module and split that an
            evaluation looks at.
        profile_steps: First and last step of a profile for TensorBoard:
            `100,110`.

    Raises:
        UsageError: If a value is of a wrong type or makes no sense.
    """

    gradient_accumulation_steps: int = 1
    steps_per_execution: int = 1
    jit_compile: bool = False
    rematerialize: bool = False
    keep_checkpoints: int = 3
    on_nan: str = "stop"
    max_steps_without_improvement: int = 0
    evaluation_examples: int = 200
    profile_steps: tuple = ()

    def __post_init__(self):
        set_types(self)
        check_names("on_nan", [self.on_nan], ON_NAN)
        for name in (
            "gradient_accumulation_steps",
            "steps_per_execution",
            "keep_checkpoints",
        ):
            if getattr(self, name) < 1:
                raise UsageError(
                    f"{name} must be positive. Received: {getattr(self, name)}."
                )
        for name in ("max_steps_without_improvement", "evaluation_examples"):
            if getattr(self, name) < 0:
                raise UsageError(
                    f"{name} must not be negative. Received: "
                    f"{getattr(self, name)}."
                )
        try:
            steps = tuple(map(int, self.profile_steps))
        except ValueError:
            steps = None
        if steps is None or (
            steps and not (len(steps) == 2 and 0 < steps[0] <= steps[1])
        ):
            raise UsageError(
                f"profile_steps must be a first and a last step, such as "
                f"100,110. Received: {','.join(map(str, self.profile_steps))}."
            )
        object.__setattr__(self, "profile_steps", steps)
