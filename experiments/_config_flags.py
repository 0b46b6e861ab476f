"""Flags that are a dataclass's fields, which alone declares them."""

import dataclasses
import inspect
import re

from absl import flags

# Whoever calls `define` is to have the flags, in his help too.
flags.disclaim_key_flags()

_KINDS = {
    bool: flags.DEFINE_bool,
    float: flags.DEFINE_float,
    int: flags.DEFINE_integer,
    str: flags.DEFINE_string,
    tuple: flags.DEFINE_list,
}


def define(config_class, leave_out=()):
    """Defines a flag for every field: its name, type, default and help.

    Args:
        config_class: A dataclass whose docstring describes its `Args`.
        leave_out: Names of fields whose flags are something else.
    """
    for field, description in _described_fields(config_class).values():
        if field.name not in leave_out:
            default = field.default
            if field.type is tuple:
                default = list(default)
            _KINDS[field.type](field.name, default, description)


def values(config_class, leave_out=()):
    """Returns the values of the flags that were given, by name.

    Args:
        config_class: A dataclass.
        leave_out: Names of fields that have no flags, or other ones.
    """
    return {
        name: flags.FLAGS[name].value
        for name in _described_fields(config_class)
        if name not in leave_out and not flags.FLAGS[name].using_default_value
    }


def _described_fields(config_class):
    """Returns pairs of a field and its description, by name.

    A nested configuration has the fields of all its `SECTIONS`.
    """
    found = {}
    for section in getattr(config_class, "SECTIONS", (config_class,)):
        descriptions = _descriptions(section)
        for field in dataclasses.fields(section):
            description = descriptions.get(field.name)
            found.setdefault(field.name, (field, description))
    return found


def _descriptions(config_class):
    """What a docstring in Google's style says of every argument, plainly."""
    # Under `python -OO` there are no docstrings.
    docstring = inspect.getdoc(config_class) or ""
    _, _, section = docstring.partition("\nArgs:\n")
    section = section.partition("\n\n")[0]
    arguments = re.split(r"^    (\w+): ", section, flags=re.MULTILINE)[1:]
    return {
        name: " ".join(text.replace("`", "").split())
        for name, text in zip(arguments[::2], arguments[1::2])
    }
