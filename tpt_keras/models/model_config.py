import dataclasses
import json
import typing

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names
from tpt_keras.errors import set_types


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """What the configurations of all models have in common.

    Args:
        dropout: Dropout rate, everywhere.
        vocabulary: The symbols, each at its token id.
        vocabulary_size: Number of token ids. Defaults to the number of
            symbols; a larger size leaves rows unused.

    Raises:
        UsageError: If a value is of a wrong type or makes no sense.
    """

    # The name of the subclass in a stored configuration.
    KIND: typing.ClassVar = None
    # Every subclass with a name, by its name.
    KINDS: typing.ClassVar = {}
    # Fields that hold a size, and take none below one.
    SIZES: typing.ClassVar = ("vocabulary_size",)

    dropout: float = 0.0
    vocabulary: tuple = ()
    vocabulary_size: int = 0

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if cls.KIND is not None:
            cls.KINDS[cls.KIND] = cls

    @property
    def cell_names(self):
        """Names of the layers that can be rematerialized, if any."""
        return ()

    def __post_init__(self):
        set_types(self)
        if not self.vocabulary_size:
            object.__setattr__(self, "vocabulary_size", len(self.vocabulary))
        for name in self.SIZES:
            if getattr(self, name) <= 0:
                raise UsageError(
                    f"{name} must be positive. Received: {getattr(self, name)}."
                )
        if not 0.0 <= self.dropout < 1.0:
            raise UsageError(
                f"dropout must be in [0, 1). Received: {self.dropout}."
            )
        if self.vocabulary_size < len(self.vocabulary):
            raise UsageError(
                f"vocabulary_size must be at least the vocabulary's "
                f"{len(self.vocabulary)} symbols. Received: "
                f"{self.vocabulary_size}."
            )

    def replace(self, **overrides):
        """A copy with other values.

        Args:
            **overrides: Hyperparameters by name.

        Returns:
            A configuration of the same class.

        Raises:
            UsageError: If a name is unknown, or a value makes no sense.
        """
        known = [field.name for field in dataclasses.fields(self)]
        check_names("hyperparameter", overrides, known)
        if "vocabulary" in overrides and "vocabulary_size" not in overrides:
            overrides["vocabulary_size"] = 0
        return dataclasses.replace(self, **overrides)

    def parse_overrides(self, text):
        """Hyperparameters from `"name=value,name=value"`, typed as here.

        An option of a choice has a dotted name:
        `"attention=relative,attention_options.max_distance=8"`.

        Args:
            text: The overrides; may be empty.

        Returns:
            Dict of name to value.

        Raises:
            UsageError: If a name is unknown or a value is not of its type.
        """
        overrides = {}
        known = [
            field.name
            for field in dataclasses.fields(self)
            if field.name != "vocabulary"
        ]
        for item in filter(None, text.split(",")):
            name, _, value = map(str.strip, item.partition("="))
            name, _, option = name.partition(".")
            check_names("hyperparameter", [name], known)
            kind = type(getattr(self, name))
            if (kind is dict) != bool(option):
                raise UsageError(
                    f"Hyperparameter {name} has "
                    + ("options" if kind is dict else "no options")
                    + f". Received: {item.strip()!r}; an option is set as in "
                    "attention_options.max_distance=8."
                )
            if kind is dict:
                options = overrides.get(name, getattr(self, name))
                overrides[name] = {**options, option: _parse_option(value)}
                continue
            try:
                overrides[name] = _parse(value, kind)
            except ValueError:
                raise UsageError(
                    f"Hyperparameter {name} takes a value of type "
                    f"{kind.__name__}. Received: {value!r}."
                ) from None
        return overrides


def _parse(text, kind):
    """`text` as a value of `kind`; raises ValueError if it is none."""
    if kind is bool:
        return ("false", "true").index(text.lower()) == 1
    return kind(text)


def _parse_option(text):
    """A number, a bool or a string: what it looks like."""
    try:
        return json.loads(text.lower())
    except ValueError:
        return text
