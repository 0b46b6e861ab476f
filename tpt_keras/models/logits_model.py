"""The base class of models whose outputs are logits."""

import inspect
from typing import Any

import keras

from tpt_keras.errors import UsageError

# Keras's short names of cross-entropies.
_SHORT_NAMES = ("bce", "ce")


class LogitsModel(keras.Model):
    """Base class of models whose outputs are logits."""

    # The class of the configurations. A class without one is abstract.
    config_class: Any = ()

    @classmethod
    def takes(cls, config: Any) -> bool:
        """Returns `True` if this class makes models of `config`."""
        return isinstance(config, cls.config_class)

    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = "auto",
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Configures the model for training; see `keras.Model.compile`.

        Args:
            optimizer: The optimizer, or its name.
            loss: The loss, of logits. Defaults to `"auto"`: the cross-entropy,
                divided by the sum of the tokens' weights.
            *args: As those of Keras.
            **kwargs: As those of Keras.

        Raises:
            UsageError: If the loss or a metric takes probabilities.
        """
        if isinstance(loss, str) and loss == "auto":
            loss = keras.losses.SparseCategoricalCrossentropy(
                from_logits=True, reduction="mean_with_sample_weight"
            )
        bound = inspect.signature(super().compile).bind(
            optimizer, loss, *args, **kwargs
        )
        for field in ("loss", "metrics", "weighted_metrics"):
            for each in keras.tree.flatten(bound.arguments.get(field)):
                _refuse_probabilities(each, field)
        super().compile(*bound.args, **bound.kwargs)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        # Keras's own leaves a model with a `compile` of its own uncompiled.
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)


def _refuse_probabilities(loss, field):
    if isinstance(loss, str):
        name = loss.lower()
        # A name means Keras's defaults.
        from_logits = not (
            name.endswith("crossentropy") or name in _SHORT_NAMES
        )
    elif hasattr(loss, "from_logits"):
        from_logits = loss.from_logits
    else:
        parameters = inspect.signature(loss).parameters if loss else {}
        default = parameters.get("from_logits")
        from_logits = default is None or default.default
    if not from_logits:
        name = getattr(loss, "name", None) or getattr(loss, "__name__", loss)
        raise UsageError(
            f"The model's outputs are logits, and {name!r} takes "
            "probabilities. Give an object that was made with "
            "from_logits=True; `loss` may also be left out.",
            field=field,
        )
