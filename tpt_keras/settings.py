"""Fields of configurations, declared with the values that they take."""

import collections.abc
import contextlib
import dataclasses
import json
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
    items=None,
    may_change=False,
    init=True,
):
    """Declares a dataclass field and the values that it takes.

    Args:
        default: Default value.
        minimum: Smallest value.
        above: Number that a value must be larger than.
        below: Number that a value must be smaller than. Numbers must be
            finite in any case.
        choices: Names that a value is one of.
        items: Type of a tuple's items, which the other rules are about. Texts
            are parsed, because flags give texts.
        may_change: Whether a training that resumes may have another value.
        init: Whether a value may be passed, as to `dataclasses.field`.

    Returns:
        A `dataclasses.Field`.
    """
    rules = {
        "minimum": minimum,
        "above": above,
        "below": below,
        "choices": choices,
        "items": items,
        "may_change": may_change,
    }
    return dataclasses.field(default=default, init=init, metadata=rules)


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
        name, rules = field.name, field.metadata
        value = _typed(name, getattr(config, name), field.type)
        values = [value]
        if rules.get("items"):
            value = values = tuple(
                _typed(name, _parsed(item, rules["items"]), rules["items"])
                for item in value
            )
        object.__setattr__(config, name, value)
        for each in values:
            if rules.get("choices"):
                check_choice(name, each, rules["choices"])
            if type(each) in (int, float):
                _check_number(name, each, rules)


def parse_items(field, items, kinds):
    """Parses texts of the form `"name=value"` to a dict.

    A name of the type `dict` takes options: `"attention_options.rank=8"`.

    Args:
        field: The field that has the texts.
        items: The texts.
        kinds: Dict of the known names to the types of their values.

    Raises:
        UsageError: If a name is unknown or given twice, or if a value has
            another type.
    """
    parsed = {}
    for item in items:
        name, _, text = map(str.strip, item.partition("="))
        option = ""
        if name not in kinds:
            name, _, option = name.partition(".")
        check_choice(field, name, kinds)
        kind = kinds[name]
        if option and kind is dict:
            parsed.setdefault(name, {})[option] = _parsed(text)
        elif option or name in parsed:
            fault = "has no options" if option else "is given twice"
            raise UsageError(f"{name} {fault} in `{field}`.", field=field)
        else:
            parsed[name] = _typed(name, _parsed(text, kind), kind, field)
    return parsed


def _parsed(value, kind=None):
    """Converts a text to a number, or to a bool if no number is wanted."""
    if isinstance(value, str) and kind is not str:
        with contextlib.suppress(ValueError):
            if kind in (int, float):
                return kind(value)
            return json.loads(value.lower())
    return value


def _typed(name, value, kind, field=None):
    is_misplaced_bool = isinstance(value, bool) and kind is not bool
    if is_misplaced_bool or not isinstance(value, _ACCEPTED[kind]):
        label = f"{name} of `{field}`" if field else f"`{name}`"
        raise UsageError(
            f"{label} takes a value of type {kind.__name__}. Received: "
            f"{value!r} (of type {type(value).__name__}).",
            field=field or name,
        )
    return kind(value)


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
