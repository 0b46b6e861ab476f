import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.settings import check_settings
from tpt_keras.settings import setting
from tpt_keras.training.config import OPTIMIZERS
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.schedules import SCHEDULES
from tpt_keras.typing import Items

if TYPE_CHECKING:
    import keras_tuner

    from tpt_keras.models import TransformerConfig

TUNERS = ("random", "bayesian", "grid")
# Metrics of the validation, and the better of two values.
OBJECTIVES = {
    "val_sequence_accuracy": max,
    "val_token_accuracy": max,
    "val_loss": min,
}
# Fields of a training that a proposal decides.
SEARCHED = ("optimizer", "learning_rate", "schedule", "warmup_steps")
# Fields of a model that a proposal decides.
_SIZES = (
    "dropout",
    "hidden_dim",
    "intermediate_dim",
    "num_heads",
    "num_layers",
)


@dataclasses.dataclass(frozen=True)
class SearchSpace:
    """The choices of a search, among models of equal size.

    A proposal names a variant, its layers and its heads. The model is the
    widest one within `max_weights`. Its filter takes the remaining weights, so
    that models differ by less than a percent.

    Args:
        variants: Names of presets of Transformers.
        num_layers: Numbers of encoder cells and of decoder cells.
        num_heads: Numbers of attention heads.
        filter_ratios: Filters' sizes, as shares of the hidden size. Empty:
            each variant's own.
        dropouts: Dropout rates.
        optimizers: adam, muon.
        learning_rates: Lowest and highest peak learning rate. Between them,
            each rate is twice the one before.
        schedules: constant, cosine, linear.
        warmup_shares: Shares of the steps over which the learning rate rises,
            unless it is constant.
        min_weights: Fewest weights of a model.
        max_weights: Most weights of a model.
        hparams: Changes to the presets: `max_question_length=500`. What is
            searched, and the sizes, cannot be among them.
        vocabulary: The task's symbols. Empty: those of the presets, which are
            the Mathematics Dataset's. `tune` sets it.

    Raises:
        UsageError: If a value is invalid, or if a combination has no model of
            this size.

    Example:

    ```python
    space = SearchSpace(variants=["transformer", "tp_transformer"])
    hp = keras_tuner.HyperParameters()
    model_config, training_config = space.propose(hp, training_config)
    ```
    """

    variants: Items = setting(
        (
            "transformer",
            "tp_transformer",
            "tp_transformer_b",
            "tp_transformer_c",
        ),
        items=str,
    )
    num_layers: Items = setting((1, 2), items=int, minimum=1)
    num_heads: Items = setting((2, 4), items=int, minimum=1)
    filter_ratios: Items = setting((), items=float, above=0)
    dropouts: Items = setting((0.0, 0.1), items=float, minimum=0, below=1)
    optimizers: Items = setting(("adam",), items=str, choices=tuple(OPTIMIZERS))
    learning_rates: Items = setting((5e-4, 4e-3), items=float, above=0)
    schedules: Items = setting(("cosine",), items=str, choices=tuple(SCHEDULES))
    warmup_shares: Items = setting((0.1,), items=float, minimum=0, below=1)
    min_weights: int = setting(190_000, minimum=1)
    max_weights: int = setting(200_000, minimum=1)
    hparams: str = setting("")
    vocabulary: Items = setting(())

    def __post_init__(self):
        check_settings(self)
        for field in dataclasses.fields(self):
            may_be_empty = "filter_ratios", "hparams", "vocabulary"
            if field.name not in may_be_empty and not getattr(self, field.name):
                raise UsageError(
                    f"`{field.name}` must have a value.", field=field.name
                )
        rates = self.learning_rates
        if len(rates) != 2 or rates[0] > rates[1]:
            raise UsageError(
                "`learning_rates` must be the lowest and the highest, such as "
                f"5e-4,4e-3. Received: {','.join(map(str, rates))}.",
                field="learning_rates",
            )
        of_cells = self.num_layers, self.num_heads, self.filter_ratios or [None]
        for choices in itertools.product(self.variants, *of_cells):
            self._model(*choices)

    def propose(
        self, hp: "keras_tuner.HyperParameters", training: TrainingConfig
    ) -> tuple["TransformerConfig", TrainingConfig]:
        """Converts hyperparameters to configurations.

        Hyperparameters that `hp` does not know are declared in it. `training`
        has everything that is not searched.
        """
        variant = _choice(hp, "variant", self.variants)
        model = self._model(
            variant,
            _choice(hp, "num_layers", self.num_layers),
            _choice(hp, "num_heads", self.num_heads),
            _choice(hp, "filter_ratio", self.filter_ratios),
        )
        dropout = _choice(hp, "dropout", self.dropouts)
        optimizer = _choice(hp, "optimizer", self.optimizers)
        low, high = self.learning_rates
        # The step is a factor: each rate is twice the one before.
        rate = hp.Float("learning_rate", low, high, step=2, sampling="log")
        schedule = _choice(hp, "schedule", self.schedules)
        share = None
        decays = [name for name in self.schedules if name != "constant"]
        if decays:
            with hp.conditional_scope("schedule", decays):
                share = _choice(hp, "warmup_share", self.warmup_shares)
        return model.replace(dropout=dropout), training.replace(
            optimizer=optimizer,
            learning_rate=rate,
            schedule=schedule,
            warmup_steps=int((share or 0) * training.run.train_steps),
        )

    def preset(self, variant: str) -> "TransformerConfig":
        """Returns the configuration of a variant before it is resized."""
        preset = transformer_preset(variant)
        changes = preset.parse_overrides(self.hparams)
        for name in changes:
            if name in _SIZES:
                raise UsageError(
                    f"`hparams` cannot have {name}: the search chooses it.",
                    field="hparams",
                )
        if self.vocabulary:
            changes["vocabulary"] = self.vocabulary
        return preset.replace(**changes)

    def _model(self, variant, *of_cells):
        config, num_weights = _largest_model(
            self.max_weights, self.preset(variant), *of_cells
        )
        if num_weights < self.min_weights:
            raise UsageError(
                f"No {variant} with the layers, heads and filter {of_cells} "
                f"has {self.min_weights} to {self.max_weights} weights. Raise "
                "`max_weights`, lower `min_weights`, or leave these out.",
                field="max_weights",
            )
        return config


def transformer_preset(name: str) -> "TransformerConfig":
    """Returns the preset of a Transformer: LSTMs have no layers and heads."""
    # Imported late: the commands read the fields above before Keras.
    from tpt_keras.models import PRESETS
    from tpt_keras.models import TransformerConfig

    known = {
        name: preset
        for name, preset in PRESETS.items()
        if isinstance(preset, TransformerConfig)
    }
    check_choice("variant", name, known)
    return known[name]


@functools.cache
def _largest_model(max_weights, preset, num_layers, num_heads, filter_ratio):
    from tpt_keras.layers import ATTENTION_POSITIONS
    from tpt_keras.models import count_weights

    # Rotary positions turn pairs of a head's columns.
    step = 2 if preset.positions in ATTENTION_POSITIONS else 1
    if filter_ratio is None:
        filter_ratio = preset.intermediate_dim / preset.hidden_dim

    def resized(head_dim):
        hidden_dim = head_dim * num_heads
        return preset.replace(
            hidden_dim=hidden_dim,
            intermediate_dim=math.ceil(filter_ratio * hidden_dim),
            num_heads=num_heads,
            num_layers=num_layers,
        )

    number = largest(lambda n: count_weights(resized(step * n)), max_weights)
    if not number:
        return preset, 0
    return largest_filter(resized(step * number), max_weights)


def largest_filter(
    config: "TransformerConfig", max_weights: int
) -> tuple["TransformerConfig", int]:
    """Returns a configuration with the largest filter, and its weights.

    They are more than `max_weights` if a filter of 1 is too large.
    """
    from tpt_keras.models import count_weights

    one, two = (
        count_weights(config.replace(intermediate_dim=size)) for size in (1, 2)
    )
    # Each unit of the filter adds as many.
    more = max((max_weights - one) // (two - one), 0)
    return (
        config.replace(intermediate_dim=1 + more),
        one + more * (two - one),
    )


def _choice(hp, name, values):
    """One of the values, or `None` without any or in an inactive scope."""
    if not values:
        return None
    if len(values) == 1:
        return hp.Fixed(name, values[0])
    return hp.Choice(name, list(values))


def largest(count: Callable[[int], int], limit: int) -> int:
    """The largest positive integer whose count is within a limit, or 0.

    It interpolates where a bisection would halve: each count takes time.
    """
    low, at_low = 1, count(1)
    if at_low > limit:
        return 0
    high, at_high = low, at_low
    while at_high <= limit:
        low, at_low = high, at_high
        high *= 4
        at_high = count(high)
    while high - low > 1:
        share = (limit - at_low) / (at_high - at_low)
        middle = low + round(share * (high - low))
        middle = min(max(middle, low + 1), high - 1)
        at_middle = count(middle)
        if at_middle <= limit:
            low, at_low = middle, at_middle
        else:
            high, at_high = middle, at_middle
    return low
