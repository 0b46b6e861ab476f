"""Whether the training of a folder is the one that is asked for."""

import dataclasses
import json

from tpt_keras.errors import UsageError
from tpt_keras.models.configs import ModelConfig
from tpt_keras.training.config import MAY_CHANGE
from tpt_keras.training.config import TrainingConfig


def check_same_training(model_dir, old, new):
    """Raises a `UsageError` if the two are not the same training.

    The data may lie elsewhere if it is the same, and there may be more steps
    if the schedule is constant.

    Args:
        model_dir: The folder, for the message.
        old: Dict of the folder's configuration.
        new: Dict of the one that is asked for.
    """
    may_differ = {f"training.{name}" for name in MAY_CHANGE}
    if is_prolonged(old, new):
        may_differ.add("training.train_steps")
    found = [
        difference
        for name, difference in differences(_complete(old), _complete(new))
        if name not in may_differ
    ]
    if found:
        raise UsageError(
            f"The folder {str(model_dir)!r} belongs to a training with "
            f"another configuration ({'; '.join(found)}). Take the "
            f"same one, or another --model_dir.{_advice(model_dir, old, new)}"
        )
    _check_data(model_dir, old, new)


def is_prolonged(old, new):
    """Whether the new training is the old one with more steps.

    Args:
        old: Dict of a folder's configuration.
        new: Dict of another one.
    """
    return _has_more_steps(old, new) and not _ends(new)


def _has_more_steps(old, new):
    if "training" not in old:
        return False
    return (
        old["training"]["run"]["train_steps"]
        < new["training"]["run"]["train_steps"]
    )


def _ends(config):
    return config["training"]["optimizer"]["schedule"] != "constant"


def _advice(model_dir, old, new):
    if not (_has_more_steps(old, new) and _ends(new)):
        return ""
    schedule = new["training"]["optimizer"]["schedule"]
    return (
        f" A {schedule} schedule ends with its last step: "
        "to learn on, start another training with "
        f"--init_from={model_dir}."
    )


def _complete(config):
    """Returns a configuration by flat names, less the data's fingerprints."""
    completed = {key: config[key] for key in config if key != "data"}
    if "model" in config:
        kind = config["model"].get("kind")
        completed["model"] = {
            **defaults(ModelConfig.KINDS.get(kind)),
            **config["model"],
        }
    if "training" in config:
        training = TrainingConfig.from_stored(config["training"]).flat()
        completed["training"] = json.loads(json.dumps(training))
    return completed


def defaults(config_class):
    """Fields' defaults, of JSON's types; none of a class that is not known."""
    if config_class is None:
        return {}
    values = {}
    for field in dataclasses.fields(config_class):
        if field.default is not dataclasses.MISSING:
            values[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            values[field.name] = field.default_factory()
    return json.loads(json.dumps(values))


def differences(old, new, prefix=""):
    """What differs between two configurations.

    Args:
        old: Dict of one that is there, of JSON's types; dicts in it, too.
        new: Dict of one that is asked for.
        prefix: What the fields' names start with.

    Yields:
        Pairs of a field's name and how it differs.
    """
    for key in sorted(old.keys() | new.keys()):
        name = f"{prefix}{key}"
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from differences(before, after, f"{name}.")
        elif before != after:
            here = f"{_shown(after)} here" if key in new else "not known here"
            yield name, f"{name}: {_shown(before)} there, {here}"


def _shown(value):
    return repr(value) if value == "" else str(value)


def _check_data(model_dir, old, new):
    before, after = old.get("data"), new.get("data")
    if before is None or after is None:
        return
    changed = [name for name in after if before.get(name) != after[name]]
    if not changed:
        return
    training = new["training"]["data"]
    if training.get("text_file"):
        found = f"The text in {training['text_file']!r} is not the one"
        advice = "Name the first one (--text_file)"
    else:
        found = (
            f"The training problems of {', '.join(changed)} in "
            f"{training['data_dir']!r} are not those"
        )
        advice = (
            "Were they made again, with another seed or number? Name the "
            "folder of the first ones (--data_dir)"
        )
    raise UsageError(
        f"{found} that the training in {str(model_dir)!r} began with. "
        f"{advice}, or another --model_dir."
    )
