"""A training's configuration as a flagfile."""

from tpt_keras.models.presets import PRESETS
from tpt_keras.models.stored_config import to_stored
from tpt_keras.training.config import TrainingConfig


def flagfile(config):
    """The flags that `experiments.train` makes the same training of.

    Args:
        config: The resolved configuration of a model's folder, as
            `read_config` gives it; it names its preset.

    Returns:
        Text, a flag in each line: those that are not the default.
    """
    preset = _by_dotted_names(to_stored(PRESETS[config["preset"]]))
    hparams = ",".join(
        f"{name}={value}"
        for name, value in _by_dotted_names(config["model"]).items()
        if name not in ("kind", "vocabulary") and value != preset.get(name)
    )
    found = TrainingConfig.from_stored(config["training"])
    training = found.flat()
    defaults = TrainingConfig.from_flat(
        found.optimizer_name, modules=found.data.modules
    ).flat() | {"optimizer": "adam"}
    modules = training.pop("modules")
    weights = zip(modules, training.pop("module_weights"))
    lists = {
        "modules": ",".join(modules),
        "module_weights": ",".join(f"{name}={w}" for name, w in weights),
        "profile_steps": ",".join(map(str, training.pop("profile_steps"))),
    }
    flags = {
        "preset": config["preset"],
        "hparams": hparams,
        **lists,
        **{
            name: value
            for name, value in training.items()
            if value != defaults[name]
        },
    }
    return "".join(
        f"--{name}={value}\n" for name, value in flags.items() if value != ""
    )


def _by_dotted_names(model):
    """A stored model's fields, and each option of its choices for itself."""
    fields = {}
    for name, value in model.items():
        if isinstance(value, dict):
            fields |= {f"{name}.{key}": value[key] for key in value}
        else:
            fields[name] = value
    return fields
