"""The configuration of a training: its data, its optimizer and its run.

Every field is declared once, here, and the commands make a flag of each: names
are flat and unique. Nothing here imports Keras, because the commands read the
fields before they load a backend.
"""

import dataclasses
import math
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import Self

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.errors import check_choices
from tpt_keras.settings import check_settings
from tpt_keras.settings import setting
from tpt_keras.typing import Items

PRECISIONS = ("float32", "mixed_bfloat16")
DISTRIBUTIONS = ("none", "mirrored", "multi_worker_mirrored")
SCHEDULES = ("constant", "cosine", "linear")
NEWTON_SCHULZ_DTYPES = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """The data that a model learns from.

    Args:
        modules: Names of the modules to train on; none with a `text_file`.
        data_dir: Folder that `prepare_data` filled, or the file or folder of
            text pairs.
        dataset: `"mathematics_dataset"`, `"mathematics_stream"` (endless,
            drawn by processes beside the training), tfds's stock
            `"math_dataset"`, or
            `"text_pairs"`, your own file of questions and answers.
        dataset_options: Options of the dataset: `test_share=0.2,split_seed=1`.
        module_weights: Shares of the modules by name:
            `numbers__gcd=2,numbers__place_value=0.5`. A module without a share
            has 1. In Python also one number each, in the order of `modules`.
        drawing_processes: Processes that draw the problems of a stream. `0`:
            one a core, less one.
        text_file: Text that a language model learns, of any bytes. Its last
            tenth is for validation and test.
        segment_length: Bytes in a segment of the text. A batch has a segment
            of each of its streams.
        batch_size: Problems in a batch, or streams of a text.
        validation_examples: Training problems set apart for validation.
    """

    modules: Items = setting(())
    # The data itself is compared when a training resumes.
    data_dir: str = setting("data", may_change=True)
    dataset: str = setting("mathematics_dataset")
    dataset_options: Items = setting(())
    module_weights: Items = setting(())
    drawing_processes: int = setting(0, minimum=0, may_change=True)
    text_file: str = setting("", may_change=True)
    segment_length: int = setting(512, minimum=1)
    batch_size: int = setting(1024, minimum=1)
    validation_examples: int = setting(1000, minimum=1)

    def __post_init__(self):
        check_settings(self)
        if bool(self.modules) == bool(self.text_file):
            raise UsageError(
                "Either `modules` must name at least one module or "
                "`text_file` a text.",
                field="modules",
            )
        weights = self.module_weights
        if any(isinstance(weight, str) for weight in weights):
            weights = parse_module_weights(weights, self.modules)
        weights = tuple(map(float, weights))
        object.__setattr__(self, "module_weights", weights)
        if weights and len(weights) != len(self.modules):
            raise UsageError(
                f"`module_weights` needs one weight for each of the "
                f"{len(self.modules)} modules. Received: {len(weights)}.",
                field="module_weights",
            )
        if not all(0 < weight < math.inf for weight in weights):
            raise UsageError(
                "`module_weights` must be positive and finite. Received: "
                f"{', '.join(map(str, weights))}.",
                field="module_weights",
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """Hyperparameters that every optimizer has.

    A new optimizer is a subclass with its row in `OPTIMIZERS`.

    Args:
        optimizer: `"adam"`, `"adamw"` (with weight decay), `"muon"` (matrices
            by Muon, other weights by AdamW) or `"lion"`.
        learning_rate: Peak learning rate.
        schedule: `"constant"`, or `"cosine"` or `"linear"`: decays to zero at
            the last step, or when the `train_minutes` are over.
        warmup_steps: Steps over which the learning rate rises from zero.
        weight_decay: Decoupled weight decay: the share of a weight, times the
            learning rate, that a step subtracts.
        global_clipnorm: Norm that the whole gradient is clipped at.
    """

    optimizer: str = setting("adam", init=False)
    learning_rate: float = setting(1e-4, above=0)
    schedule: str = setting("constant", choices=SCHEDULES)
    warmup_steps: int = setting(0, minimum=0)
    weight_decay: float = setting(0.0, minimum=0, below=1)
    global_clipnorm: float = setting(0.1, above=0)

    def __post_init__(self):
        check_settings(self)

    def build(self, learning_rate: Any) -> Any:
        """Builds the Keras optimizer, which does not clip."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adam(OptimizerConfig):
    """Adam as PyTorch, and so the paper, computes it.

    Args:
        beta_1: Decay rate of the first moment.
        beta_2: Decay rate of the second moment.
        adam_epsilon: Adam's epsilon.
    """

    beta_1: float = setting(0.9, minimum=0, below=1)
    beta_2: float = setting(0.995, minimum=0, below=1)
    adam_epsilon: float = setting(1e-8, minimum=0, below=1)

    def build(self, learning_rate: Any) -> Any:
        from tpt_keras.training.optimizers import PyTorchAdam

        return PyTorchAdam(
            learning_rate,
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            epsilon=self.adam_epsilon,
            weight_decay=self.weight_decay or None,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam with weight decay."""

    optimizer: str = setting("adamw", init=False)
    weight_decay: float = setting(0.01, above=0, below=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Muon(Adam):
    """Muon for matrices, AdamW for all other weights.

    Args:
        momentum: Momentum of the matrices.
        momentum_warmup_steps: Steps over which the momentum rises from 0.85.
        newton_schulz_dtype: Dtype of the products that make the steps of
            matrices orthogonal: `"float32"`, or `"bfloat16"`, which is faster
            where the device has it.
    """

    optimizer: str = setting("muon", init=False)
    weight_decay: float = setting(0.1, minimum=0, below=1)
    momentum: float = setting(0.95, minimum=0, below=1)
    momentum_warmup_steps: int = setting(300, minimum=0)
    newton_schulz_dtype: str = setting("float32", choices=NEWTON_SCHULZ_DTYPES)

    def build(self, learning_rate: Any) -> Any:
        from tpt_keras.training import optimizers

        return optimizers.Muon(
            learning_rate,
            weight_decay=self.weight_decay or None,
            adam_beta_1=self.beta_1,
            adam_beta_2=self.beta_2,
            epsilon=self.adam_epsilon,
            momentum=self.momentum,
            momentum_warmup_steps=self.momentum_warmup_steps,
            newton_schulz_dtype=self.newton_schulz_dtype,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lion(OptimizerConfig):
    """Lion (Chen et al. 2023): the sign of an averaged gradient.

    Args:
        beta_1: Share of the average in a step.
        beta_2: Decay rate of the average.
    """

    optimizer: str = setting("lion", init=False)
    beta_1: float = setting(0.9, minimum=0, below=1)
    beta_2: float = setting(0.995, minimum=0, below=1)

    def build(self, learning_rate: Any) -> Any:
        import keras

        return keras.optimizers.Lion(
            learning_rate,
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            weight_decay=self.weight_decay or None,
        )


OPTIMIZERS: dict = {"adam": Adam, "adamw": AdamW, "muon": Muon, "lion": Lion}


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """The steps of a training, their arithmetic and their checkpoints.

    Fields that may have another value when a training resumes change no
    result except for rounding; `gradient_accumulation_steps` also changes
    the noise of dropout, which each micro-batch draws for itself.

    Args:
        train_steps: Number of optimizer steps.
        train_minutes: Ends the training after this time. `0`: no limit.
        seed: Seed of weights, order and dropout.
        precision: Dtype policy to compute with: `"float32"` or
            `"mixed_bfloat16"`.
        init_from: Folder or name of a model whose weights to start with: the
            best model's, or else the last one's. Empty: new weights.
        steps_per_checkpoint: Steps between checkpoints and rows of the
            metrics' log, if there is no evaluation earlier.
        steps_per_evaluation: Steps between evaluations, a multiple of
            `steps_per_checkpoint` unless it is smaller.
        evaluation_examples: Problems of every module and split in an
            evaluation.
        gradient_accumulation_steps: Micro-batches that a batch is split into,
            to save memory.
        keep_checkpoints: Number of checkpoints to keep.
    """

    train_steps: int = setting(1_000_000, minimum=1)
    train_minutes: float = setting(0.0, minimum=0)
    seed: int = setting(0, minimum=0, below=2**32)
    precision: str = setting("float32", choices=PRECISIONS)
    init_from: str = setting("")
    steps_per_checkpoint: int = setting(200, minimum=1)
    steps_per_evaluation: int = setting(1000, minimum=1)
    evaluation_examples: int = setting(200, minimum=0, may_change=True)
    gradient_accumulation_steps: int = setting(1, minimum=1, may_change=True)
    keep_checkpoints: int = setting(3, minimum=1, may_change=True)

    def __post_init__(self):
        check_settings(self)
        rarer, often = self.steps_per_evaluation, self.steps_per_checkpoint
        if rarer > often and rarer % often:
            raise UsageError(
                "`steps_per_evaluation` must be a multiple of "
                f"`steps_per_checkpoint`. Received: {rarer} and {often}.",
                field="steps_per_evaluation",
            )

    @property
    def interval(self) -> int:
        """Steps between two checkpoints."""
        return min(self.steps_per_checkpoint, self.steps_per_evaluation)


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """The configuration of a training; the model's is beside it.

    The defaults are the paper's recipe (section 4.1).

    Args:
        data: A `DataConfig`.
        optimizer: An `Adam` or another of `OPTIMIZERS`.
        run: A `RunConfig`.

    Raises:
        UsageError: If a value has another type or makes no sense.

    Example:

    >>> config = TrainingConfig(
    ...     DataConfig(["numbers__gcd"], batch_size=128),
    ...     Adam(learning_rate=1e-3, warmup_steps=100),
    ...     RunConfig(train_steps=1000),
    ... )
    >>> config == TrainingConfig.from_flat(
    ...     modules=["numbers__gcd"],
    ...     batch_size=128,
    ...     learning_rate=1e-3,
    ...     warmup_steps=100,
    ...     train_steps=1000,
    ... )
    True
    >>> config.replace(seed=1, optimizer="lion").optimizer.warmup_steps
    100
    """

    data: DataConfig
    optimizer: OptimizerConfig = dataclasses.field(default_factory=Adam)
    run: RunConfig = dataclasses.field(default_factory=RunConfig)

    # All classes with fields, for the commands' flags.
    SECTIONS = (DataConfig, OptimizerConfig, *OPTIMIZERS.values(), RunConfig)

    def __post_init__(self):
        if not self.optimizer.warmup_steps < self.run.train_steps:
            raise UsageError(
                f"`warmup_steps` must be less than the {self.run.train_steps} "
                f"`train_steps`. Received: {self.optimizer.warmup_steps}. "
                "Lower `warmup_steps` or raise `train_steps`.",
                field="warmup_steps",
            )

    @classmethod
    def from_flat(cls, optimizer: str = "adam", **fields: Any) -> Self:
        """Makes a configuration from the flags' flat names.

        Args:
            optimizer: A key of `OPTIMIZERS`.
            **fields: Fields of all sections. Others have their defaults.

        Raises:
            UsageError: If a field is not known, or is another optimizer's.
        """
        check_choice("optimizer", optimizer, OPTIMIZERS)
        sections: tuple = (DataConfig, OPTIMIZERS[optimizer], RunConfig)
        known = set().union(*(s.__dataclass_fields__ for s in sections))
        for field in fields:
            if field not in known:
                raise UsageError(
                    f"A training with the optimizer {optimizer} has no field "
                    f"`{field}`.",
                    field=field,
                )
        return cls(
            *(
                section(
                    **{
                        name: value
                        for name, value in fields.items()
                        if name in section.__dataclass_fields__
                    }
                )
                for section in sections
            )
        )

    def flat(self) -> dict[str, Any]:
        """Returns all fields by the flags' flat names, as `from_flat` takes."""
        return {
            **dataclasses.asdict(self.data),
            **dataclasses.asdict(self.optimizer),
            **dataclasses.asdict(self.run),
        }

    def replace(self, **fields: Any) -> Self:
        """Returns a copy with other values.

        Args:
            **fields: Fields of all sections, and `optimizer`, a key of
                `OPTIMIZERS`. Another optimizer keeps the values that were set
                of the fields that it has, too.
        """
        old = self.flat()
        name = fields.get("optimizer", self.optimizer.optimizer)
        if name != self.optimizer.optimizer:
            check_choice("optimizer", name, OPTIMIZERS)
            known = OPTIMIZERS[name].__dataclass_fields__
            for field in dataclasses.fields(self.optimizer):
                if field.name not in known or old[field.name] == field.default:
                    del old[field.name]
        return type(self).from_flat(**{**old, **fields})

    def to_stored(self) -> dict[str, Any]:
        """Returns the sections as a dict for a JSON file."""
        return dataclasses.asdict(self)

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        """Restores a configuration that `to_stored` gave.

        Args:
            stored: Dict of all sections.

        Raises:
            UsageError: If there are other sections, fields or values.
        """
        try:
            data, optimizer, run = (
                stored[name] for name in ("data", "optimizer", "run")
            )
            optimizer = dict(optimizer)
            kind = OPTIMIZERS[optimizer.pop("optimizer")]
            return cls(DataConfig(**data), kind(**optimizer), RunConfig(**run))
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"The stored training is not one of this version ({error!r})."
            ) from error


# Fields that may have other values when a training resumes.
MAY_CHANGE = frozenset(
    field.name
    for section in TrainingConfig.SECTIONS
    for field in dataclasses.fields(section)
    if field.metadata["may_change"]
)


def parse_module_weights(
    items: Iterable[str], modules: Sequence[str]
) -> tuple[float, ...]:
    """Parses `"name=weight"`. A module without a weight has 1.

    Example:

    >>> parse_module_weights(["b=3"], ["a", "b"])
    (1.0, 3.0)
    """
    weights = {}
    for item in items:
        name, _, weight = item.partition("=")
        name = name.strip()
        check_choices("module of module_weights", [name], modules)
        try:
            value = float(weight)
        except ValueError:
            raise UsageError(
                f"`module_weights` takes name=weight: {modules[0]}=2. "
                f"Received: {item!r}.",
                field="module_weights",
            ) from None
        if name in weights:
            raise UsageError(
                f"`module_weights` names {name} twice.", field="module_weights"
            )
        weights[name] = value
    return tuple(weights.get(name, 1.0) for name in modules)
