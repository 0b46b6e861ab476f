"""Fields of configurations, declared with the values that they take."""

import collections.abc
import dataclasses
import math
import numbers

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice

# The accepted values of a field's type. In Python a bool is also a number.
_ACCEPTED = {
    bool: bool,
    int: numbers.Integral,
    float: numbers.Real,
    str: str,
    tuple: collections.abc.Iterable,
    dict: collections.abc.Mapping,
}


def setting(
    default,
    minimum=None,
    above=None,
    below=None,
    choices=None,
    may_change=False,
):
    """Declares a dataclass field and the values that it takes.

    Args:
        default: Default value.
        minimum: Smallest value.
        above: Number that a value must be larger than.
        below: Number that a value must be smaller than. Numbers must be
            finite in any case.
        choices: Names that a value is one of.
        may_change: Whether a training that resumes may have another value.

    Returns:
        A `dataclasses.Field`.
    """
    rules = {
        "minimum": minimum,
        "above": above,
        "below": below,
        "choices": choices,
        "may_change": may_change,
    }
    return dataclasses.field(default=default, metadata=rules)


def check_settings(config):
    """Checks every field of a new configuration by its rules.

    Values become their fields' types: a list becomes a tuple.

    Args:
        config: A frozen dataclass. Fields that were not made by `setting` have
            no rules but their type.

    Raises:
        UsageError: If a value has another type or breaks a rule.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        is_misplaced_bool = isinstance(value, bool) and field.type is not bool
        if is_misplaced_bool or not isinstance(value, _ACCEPTED[field.type]):
            raise UsageError(
                f"`{field.name}` takes a value of type "
                f"{field.type.__name__}. Received: {value!r} (of type "
                f"{type(value).__name__}).",
                field=field.name,
            )
        value = field.type(value)
        object.__setattr__(config, field.name, value)
        if field.metadata.get("choices"):
            check_choice(field.name, value, field.metadata["choices"])
        if field.type in (int, float):
            _check_number(field.name, value, field.metadata)


def _check_number(name, value, rules):
    minimum, above, below = map(rules.get, ("minimum", "above", "below"))
    parts = []
    if minimum is not None:
        parts.append((value >= minimum, f"at least {minimum}"))
    if above is not None:
        parts.append((value > above, f"above {above}"))
    if below is not None:
        parts.append((value < below, f"below {below}"))
    parts.append((-math.inf < value < math.inf, "finite"))
    if not all(holds for holds, _ in parts):
        expected = " and ".join(text for _, text in parts)
        raise UsageError(
            f"`{name}` must be {expected}. Received: {value}.", field=name
        )
