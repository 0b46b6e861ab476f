import contextlib
import dataclasses
import functools
import itertools
import math

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choices
from tpt_keras.training.optimizers import OPTIMIZERS
from tpt_keras.training.optimizers import SCHEDULES

# AdamW is adam with the weight decay of the training.
_OPTIMIZERS = tuple(name for name in OPTIMIZERS if name != "adamw")

# Lion's learning rates, as a share of Adam's (Chen et al. 2023).
LION_FACTOR = 0.1
# Fields of a training that a proposal decides.
SEARCHED = ("optimizer", "learning_rate", "schedule", "warmup_steps")


@dataclasses.dataclass(frozen=True)
class SearchSpace:
    """The choices of a search, among models of equal size.

    A proposal names a variant and, for a Transformer, its layers and heads.
    Its width follows: the widest model within `max_weights`. A Transformer's
    filter (an LSTM's hidden state) takes the remaining weights, so that models
    differ by less than a percent. Every combination is checked to have such a
    model before any training.

    Args:
        variants: Names of presets.
        num_layers: Numbers of encoder cells and of decoder cells.
        num_heads: Numbers of attention heads.
        filter_ratios: Filters' sizes, as shares of the hidden size. Empty:
            each variant's own.
        dropouts: Dropout rates.
        optimizers: adam, muon, lion.
        learning_rates: Lowest and highest peak learning rate of Adam and
            Muon. Between them, each rate is twice the one before. Lion's are
            a tenth.
        schedules: constant, cosine.
        warmup_shares: Shares of the steps over which the learning rate rises,
            for a cosine.
        min_weights: Fewest weights of a model.
        max_weights: Most weights of a model.

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

    variants: tuple = (
        "transformer",
        "tp_transformer",
        "tp_transformer_b",
        "tp_transformer_c",
    )
    num_layers: tuple = (1, 2)
    num_heads: tuple = (2, 4)
    filter_ratios: tuple = ()
    dropouts: tuple = (0.0, 0.1)
    optimizers: tuple = ("adam",)
    learning_rates: tuple = (5e-4, 4e-3)
    schedules: tuple = ("cosine",)
    warmup_shares: tuple = (0.1,)
    min_weights: int = 190_000
    max_weights: int = 200_000

    def __post_init__(self):
        # The module itself is imported for its flags, before Keras.
        from tpt_keras.models.presets import PRESETS

        self._set_types()
        check_choices("variant", self.variants, PRESETS)
        check_choices("optimizer", self.optimizers, _OPTIMIZERS)
        check_choices("schedule", self.schedules, SCHEDULES)
        for name in ("num_layers", "num_heads", "filter_ratios"):
            if not all(0 < value < math.inf for value in getattr(self, name)):
                raise UsageError(f"`{name}` must be positive.", field=name)
        for name in ("dropouts", "warmup_shares"):
            if not all(0 <= value < 1 for value in getattr(self, name)):
                raise UsageError(f"`{name}` must be in [0, 1).", field=name)
        rates = self.learning_rates
        if len(rates) != 2 or not 0 < rates[0] <= rates[1] < math.inf:
            raise UsageError(
                "`learning_rates` must be the lowest and the highest, such as "
                f"5e-4,4e-3. Received: {','.join(map(str, rates))}.",
                field="learning_rates",
            )
        if not 0 < self.min_weights <= self.max_weights:
            raise UsageError(
                "`min_weights` must be positive and at most `max_weights`. "
                f"Received: {self.min_weights} and {self.max_weights}.",
                field="min_weights",
            )
        for choices in itertools.product(
            self.variants,
            self.num_layers,
            self.num_heads,
            self.filter_ratios or [None],
        ):
            self._model(*choices)

    def _set_types(self):
        """Converts the values to their types; flags give strings."""
        kinds = {
            "variants": str,
            "optimizers": str,
            "schedules": str,
            "num_layers": int,
            "num_heads": int,
        }
        for field in dataclasses.fields(self):
            if field.type is not tuple:
                continue
            values = getattr(self, field.name)
            kind = kinds.get(field.name, float)
            try:
                values = tuple(map(kind, values))
            except ValueError:
                raise UsageError(
                    f"`{field.name}` takes values of type {kind.__name__}. "
                    f"Received: {','.join(map(str, values))}.",
                    field=field.name,
                ) from None
            if len(set(values)) < len(values) and kind is not float:
                raise UsageError(
                    f"`{field.name}` names a value twice.", field=field.name
                )
            if not values and field.name != "filter_ratios":
                raise UsageError(
                    f"`{field.name}` must have a value.", field=field.name
                )
            object.__setattr__(self, field.name, values)

    def propose(self, hp, training):
        """Converts hyperparameters to configurations.

        Hyperparameters that `hp` does not know are declared in it.

        Args:
            hp: `keras_tuner.HyperParameters`.
            training: The `TrainingConfig` of everything that is not searched.

        Returns:
            A `ModelConfig` and a `TrainingConfig`.
        """
        variant = _choice(hp, "variant", self.variants)
        cells = self._propose_cells(hp)
        dropout = _choice(hp, "dropout", self.dropouts)
        model = self._model(variant, *cells)
        return model.replace(dropout=dropout), training.replace(
            **self._propose_rate(hp),
            **self._propose_schedule(hp, training.run.train_steps),
        )

    def _propose_cells(self, hp):
        """The layers, the heads and the filter, of Transformers alone."""
        from tpt_keras.models import PRESETS
        from tpt_keras.models import TransformerConfig

        of_cells = [
            name
            for name in self.variants
            if isinstance(PRESETS[name], TransformerConfig)
        ]
        if not of_cells:
            return ()
        scope = contextlib.nullcontext()
        if len(of_cells) < len(self.variants):
            scope = hp.conditional_scope("variant", of_cells)
        with scope:
            return (
                _choice(hp, "num_layers", self.num_layers),
                _choice(hp, "num_heads", self.num_heads),
                _choice(hp, "filter_ratio", self.filter_ratios)
                if self.filter_ratios
                else None,
            )

    def _propose_rate(self, hp):
        """The optimizer, with a learning rate of its own."""
        optimizer = _choice(hp, "optimizer", self.optimizers)
        low, high = self.learning_rates
        rates = {}
        # Always in the same order, so that a search can be repeated.
        for name in filter(self.optimizers.__contains__, _OPTIMIZERS):
            factor = LION_FACTOR if name == "lion" else 1.0
            with hp.conditional_scope("optimizer", [name]):
                rates[name] = hp.Float(
                    f"{name}_learning_rate",
                    factor * low,
                    factor * high,
                    step=2,  # times the rate before
                    sampling="log",
                )
        return {"optimizer": optimizer, "learning_rate": rates[optimizer]}

    def _propose_schedule(self, hp, train_steps):
        """The schedule; only a cosine has a warm-up."""
        schedule = _choice(hp, "schedule", self.schedules)
        share = 0.0
        if "cosine" in self.schedules:
            with hp.conditional_scope("schedule", ["cosine"]):
                share = _choice(hp, "warmup_share", self.warmup_shares) or 0.0
        warmup_steps = int(share * train_steps)
        return {"schedule": schedule, "warmup_steps": warmup_steps}

    def _model(
        self, variant, num_layers=None, num_heads=None, filter_ratio=None
    ):
        """The largest model of a combination within `max_weights`."""
        config, num_weights = _largest_model(
            self.max_weights, variant, num_layers, num_heads, filter_ratio
        )
        if num_weights >= self.min_weights:
            return config
        of_cells = ""
        if hasattr(config, "num_layers"):
            of_cells = f"of {num_layers} layers and {num_heads} heads "
        raise UsageError(
            f"No {variant} {of_cells}has "
            f"{self.min_weights} to {self.max_weights} weights: raise "
            "`max_weights`, lower `min_weights`, or leave out these layers or "
            "heads.",
            field="max_weights",
        )


# Every trial asks, and a search has few combinations.
@functools.cache
def _largest_model(max_weights, variant, num_layers, num_heads, filter_ratio):
    """The largest model of a combination and its weights, or 0 weights."""
    from tpt_keras.models import count_weights
    from tpt_keras.models.presets import PRESETS

    preset = PRESETS[variant]

    def config(width, more=0):
        return preset.resized(
            width,
            more,
            num_layers=num_layers,
            num_heads=num_heads,
            filter_ratio=filter_ratio,
        )

    def count(*sizes):
        return count_weights(config(*sizes))

    width = _largest(count, max_weights, 1)
    if not width:
        return preset, 0
    more = _largest(lambda more: count(width, more), max_weights, 0)
    found = config(width, more)
    return found, count_weights(found)


def _choice(hp, name, values):
    """One of the values, or `None` for an inactive hyperparameter."""
    if len(values) == 1:
        return hp.Fixed(name, values[0])
    return hp.Choice(name, list(values))


def _largest(count, limit, start):
    """The largest integer whose count is within a limit, or 0.

    Bisection at interpolated places, because each count takes time.
    """
    low, at_low = start, count(start)
    if at_low > limit:
        return 0
    high, at_high = low, at_low
    while at_high <= limit:
        low, at_low = high, at_high
        high = max(4 * high, 1)
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
