import dataclasses
import math

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names
from tpt_keras.errors import set_types

OPTIMIZERS = ("adam", "adamw", "muon", "lion")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
SCHEDULES = ("constant", "cosine")
_POSITIVE = (
    "train_steps",
    "batch_size",
    "learning_rate",
    "global_clipnorm",
    "validation_examples",
    "steps_per_checkpoint",
    "steps_per_evaluation",
    "segment_length",
)


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """Everything that decides how a model is trained.

    The defaults are the paper's recipe (section 4.1).

    Args:
        modules: Names of the modules to train on; none with a `text_file`.
        data_dir: Folder that `experiments.prepare_data` filled.
        dataset: `"mathematics_dataset"`, or tfds's stock `"math_dataset"`.
        module_weights: Shares of the modules by name:
            `numbers__gcd=2,numbers__place_value=0.5`. One that is not named
            has 1. In Python also one number each, in the order of `modules`.
        train_steps: Number of optimizer steps.
        batch_size: Problems in a batch.
        optimizer: `"adam"`, `"adamw"` (the same, with a `weight_decay`),
            `"muon"` (matrices by Muon, the rest by AdamW) or `"lion"`.
        learning_rate: Peak learning rate.
        schedule: `"constant"`, or `"cosine"`: down to zero at the last step,
            or when the `train_minutes` are over.
        warmup_steps: Steps over which the learning rate rises from zero.
        beta_1: The optimizer's decay of the first moment.
        beta_2: The optimizer's decay of the second moment.
        adam_epsilon: Adam's epsilon.
        weight_decay: Share of a weight, times the learning rate, that a step
            takes off it.
        global_clipnorm: Norm that the whole gradient is clipped at.
        validation_examples: Training problems set apart for validation.
        steps_per_checkpoint: Steps between checkpoints and rows of the
            metrics' log, if there is no evaluation earlier.
        steps_per_evaluation: Steps between evaluations, a multiple of
            `steps_per_checkpoint` where it is not smaller.
        precision: Dtype policy to compute with: `"float32"`, `"mixed_bfloat16"`
            or `"mixed_float16"`, the last with loss scaling.
        seed: Seed of weights, order and dropout.
        init_from: Folder of a model to start with the weights of: its best
            one, or its last one where there is no best. Empty: new weights.
        text_file: Text that a language model learns, of any bytes: the first
            nine tenths, for its end is validation and test.
        segment_length: Bytes of it in a segment, of which every row of a
            batch has one.
        train_minutes: Minutes after which a training ends, if `train_steps`
            have not ended it before: compiling, evaluating and saving
            included, and of all its runs together. `0`: steps alone count.

    Raises:
        UsageError: If a value is of a wrong type or makes no sense.
    """

    modules: tuple
    data_dir: str = "data"
    train_steps: int = 1_000_000
    dataset: str = "mathematics_dataset"
    module_weights: tuple = ()
    batch_size: int = 1024
    optimizer: str = "adam"
    learning_rate: float = 1e-4
    schedule: str = "constant"
    warmup_steps: int = 0
    beta_1: float = 0.9
    beta_2: float = 0.995
    adam_epsilon: float = 1e-8
    weight_decay: float = 0.0
    global_clipnorm: float = 0.1
    validation_examples: int = 1000
    steps_per_checkpoint: int = 200
    steps_per_evaluation: int = 1000
    precision: str = "float32"
    seed: int = 0
    # A field that is added needs the default that keeps what was before it:
    # trainings of older versions go on with that.
    init_from: str = ""
    text_file: str = ""
    segment_length: int = 512
    train_minutes: float = 0.0

    def __post_init__(self):
        set_types(self)
        if bool(self.modules) == bool(self.text_file):
            raise UsageError(
                "modules must name at least one module, or text_file a text."
            )
        self._set_module_weights()
        check_names("schedule", [self.schedule], SCHEDULES)
        check_names("optimizer", [self.optimizer], OPTIMIZERS)
        check_names("precision", [self.precision], PRECISIONS)
        self._check_numbers()
        self._check_steps()
        if self.optimizer == "adamw" and not self.weight_decay:
            raise UsageError(
                "The optimizer adamw is adam with a --weight_decay, such as "
                "0.01: give one, or take adam."
            )

    def _set_module_weights(self):
        weights = self.module_weights
        if any(isinstance(weight, str) for weight in weights):
            weights = parse_module_weights(weights, self.modules)
        weights = tuple(map(float, weights))
        object.__setattr__(self, "module_weights", weights)
        if weights and len(weights) != len(self.modules):
            raise UsageError(
                f"There are {len(weights)} module_weights for "
                f"{len(self.modules)} modules: give one each."
            )
        if not all(0 < weight < math.inf for weight in weights):
            raise UsageError(
                f"module_weights must be positive and finite. Received: "
                f"{', '.join(map(str, weights))}."
            )

    def _check_numbers(self):
        for name in _POSITIVE:
            if not 0 < getattr(self, name) < math.inf:
                raise UsageError(
                    f"{name} must be positive. Received: {getattr(self, name)}."
                )
        for name in ("beta_1", "beta_2", "adam_epsilon", "weight_decay"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(
                    f"{name} must be in [0, 1). Received: "
                    f"{getattr(self, name)}."
                )
        if not 0 <= self.train_minutes < math.inf:
            raise UsageError(
                "train_minutes must be positive, or 0 for no limit. Received: "
                f"{self.train_minutes}."
            )
        if not 0 <= self.seed < 2**32:
            raise UsageError(
                f"seed must be in [0, 2**32). Received: {self.seed}."
            )

    def _check_steps(self):
        if not 0 <= self.warmup_steps < self.train_steps:
            raise UsageError(
                f"warmup_steps must be at least 0 and less than train_steps. "
                f"Received: {self.warmup_steps} of {self.train_steps}."
            )
        if self.steps_per_evaluation % min(
            self.steps_per_evaluation, self.steps_per_checkpoint
        ):
            raise UsageError(
                f"steps_per_evaluation must be a multiple of "
                f"steps_per_checkpoint. Received: {self.steps_per_evaluation} "
                f"and {self.steps_per_checkpoint}."
            )

    @property
    def interval(self):
        """Steps between two checkpoints."""
        return min(
            self.steps_per_checkpoint,
            self.steps_per_evaluation,
            self.train_steps,
        )


def parse_module_weights(items, modules):
    """Weights of modules that are given by name.

    Args:
        items: List of `"name=weight"`. A module that is not named weighs 1.
        modules: Names of the modules that are trained on.

    Returns:
        Tuple of floats, one a module; empty if there are no items.

    Raises:
        UsageError: If an item is no such pair, or names what is not trained
            on, or what another one names.

    Example:

    >>> parse_module_weights(["b=3"], ["a", "b"])
    (1.0, 3.0)
    """
    weights = {}
    for item in items:
        name, _, weight = item.partition("=")
        name = name.strip()
        try:
            value = float(weight)
        except ValueError:
            raise UsageError(
                "module_weights takes name=weight, such as "
                f"{modules[0]}=2. Received: {item!r}."
            ) from None
        check_names("module of module_weights", [name], modules)
        if name in weights:
            raise UsageError(f"module_weights names {name} twice.")
        weights[name] = value
    return tuple(weights.get(name, 1.0) for name in modules) if items else ()
