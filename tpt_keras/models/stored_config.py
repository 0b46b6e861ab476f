"""A model's configuration as a JSON file holds it, which tells its kind."""

import dataclasses

from tpt_keras.errors import check_names
from tpt_keras.models.model_config import ModelConfig
from tpt_keras.models.transformer_config import TransformerConfig

# Every kind whose module is imported.
KINDS = ModelConfig.KINDS


def to_stored(config):
    """What to store of a configuration.

    Args:
        config: A `ModelConfig`, such as a `TransformerConfig`.

    Returns:
        Dict of its fields and its `kind`.

    Example:

    >>> from tpt_keras.models.presets import PRESETS
    >>> stored = to_stored(PRESETS["lstm"])
    >>> stored["kind"], stored["hidden_dim"]
    ('lstm', 2048)
    >>> from_stored(stored) == PRESETS["lstm"]
    True
    """
    return {"kind": config.KIND, **dataclasses.asdict(config)}


def from_stored(stored):
    """The configuration that was stored.

    Args:
        stored: What `to_stored` gave, also after a way through JSON.

    Returns:
        A `ModelConfig`, such as a `TransformerConfig`.

    Raises:
        UsageError: If the kind is unknown, or a value makes no sense.
    """
    fields = {name: value for name, value in stored.items() if name != "kind"}
    kind = kind_of(stored)
    check_names("kind of model", [kind], KINDS)
    return KINDS[kind](**fields)


def kind_of(stored):
    """The kind of a stored configuration.

    Args:
        stored: What `to_stored` gave, or a version that knew Transformers
            alone.

    Returns:
        A key of `KINDS`.
    """
    return stored.get("kind", TransformerConfig.KIND)
