"""Fields of configurations that are declared with their rules."""

import dataclasses
import math

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.errors import set_types


def setting(
    default,
    minimum=None,
    above=None,
    below=None,
    choices=None,
    may_change=False,
):
    """A dataclass field and the values that it takes.

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
    """Checks every field of a configuration by its rules.

    Values become their fields' types: a list becomes a tuple.

    Args:
        config: A frozen dataclass whose fields were made by `setting`.

    Raises:
        UsageError: If a value has another type or breaks a rule.
    """
    set_types(config)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.metadata.get("choices"):
            check_choice(field.name, value, field.metadata["choices"])
        if field.type in (int, float):
            _check_number(field, value)


def _check_number(field, value):
    rules = field.metadata
    parts = []
    if rules.get("minimum") is not None:
        parts.append(
            (value >= rules["minimum"], f"at least {rules['minimum']}")
        )
    if rules.get("above") is not None:
        parts.append((value > rules["above"], f"above {rules['above']}"))
    if rules.get("below") is not None:
        parts.append((value < rules["below"], f"below {rules['below']}"))
    if not parts or field.type is float:
        parts.append((math.isfinite(value), "finite"))
    if not all(holds for holds, _ in parts):
        expected = " and ".join(text for _, text in parts)
        raise UsageError(
            f"`{field.name}` must be {expected}. Received: {value}.",
            field=field.name,
        )


def changeable(config_class):
    """Names of the fields that may change when a training resumes.

    Args:
        config_class: A dataclass.

    Returns:
        Set of strings.
    """
    return {
        field.name
        for field in dataclasses.fields(config_class)
        if field.metadata.get("may_change")
    }
