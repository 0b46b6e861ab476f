"""Flags that are made from the fields of configurations."""

import dataclasses
import inspect
import os
import re

from absl import flags

from tpt_keras.errors import check_choice

# The flags count as those of the module that calls `define`.
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

    The help is the field's in the class's docstring. Of a nested class, the
    fields of all its `SECTIONS` become flags, but for those to `leave_out`.
    """
    for field, description in _described_fields(config_class).values():
        if field.name not in leave_out:
            default = field.default
            if field.type is tuple:
                default = list(default)
            _KINDS[field.type](field.name, default, description)


def values(config_class, leave_out=()):
    """Returns a dict of the fields whose flags were given."""
    return {
        name: flags.FLAGS[name].value
        for name in _described_fields(config_class)
        if name not in leave_out and not flags.FLAGS[name].using_default_value
    }


def _described_fields(config_class):
    """Returns a dict of names to pairs of a field and its description."""
    found = {}
    for section in getattr(config_class, "SECTIONS", (config_class,)):
        descriptions = _descriptions(section)
        for field in dataclasses.fields(section):
            description = descriptions.get(field.name)
            found.setdefault(field.name, (field, description))
    return found


def _descriptions(config_class):
    """Returns the descriptions of the arguments in a Google-style docstring."""
    # Under `python -OO` there are no docstrings.
    docstring = inspect.getdoc(config_class) or ""
    _, _, section = docstring.partition("\nArgs:\n")
    section = section.partition("\n\n")[0]
    arguments = re.split(r"^    (\w+): ", section, flags=re.MULTILINE)[1:]
    return {
        name: " ".join(text.replace("`", "").split())
        for name, text in zip(arguments[::2], arguments[1::2])
    }


def define_devices(distribution_help):
    """Defines the flags that choose the devices of a training."""
    flags.DEFINE_string("distribution", None, distribution_help)
    flags.DEFINE_integer("num_gpus", None, "GPUs to use. Default: all.")
    flags.DEFINE_integer(
        "logical_cpus",
        None,
        "Devices to divide the CPU into, to try --distribution.",
    )


def strategy(workers=False):
    """Returns the strategy that the flags of devices ask for.

    It configures TensorFlow's devices, so that it has to come first. Without
    `workers` each process trains alone, and TF_CONFIG is ignored.
    """
    from tpt_keras.training.backends import make_strategy

    given = flags.FLAGS
    if not workers:
        check_choice(
            "distribution", given.distribution or "none", ("none", "mirrored")
        )
        os.environ.pop("TF_CONFIG", None)
    return make_strategy(given.distribution, given.num_gpus, given.logical_cpus)
