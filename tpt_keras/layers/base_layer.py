"""The base class of the layers, and their tools."""

import inspect
import numbers
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from tpt_keras.errors import UsageError


class Rematerialized:
    """Keeps JAX from tracing a layer's flags under `keras.RematScope`."""

    def rematerialized_call(self, fn, *args, **kwargs):
        flags = {k: v for k, v in kwargs.items() if isinstance(v, bool)}
        return super().rematerialized_call(
            lambda *args, **kwargs: fn(*args, **{**kwargs, **flags}),
            *args,
            **kwargs,
        )


class Dropout(keras.layers.Dropout):
    """Keras's dropout, whose rate is the argument `dropout` of a layer."""

    def __init__(self, rate: float, **kwargs: Any) -> None:
        if not isinstance(rate, numbers.Real) or not 0.0 <= rate <= 1.0:
            raise UsageError(
                f"`dropout` must be from 0 to 1. Received: {rate!r}.",
                field="dropout",
            )
        super().__init__(rate, **kwargs)

    def call(self, inputs, training=False):
        # JAX may trace `training` under `keras.RematScope`.
        return super().call(inputs, training) if self.rate else inputs


class BaseLayer(Rematerialized, keras.layers.Layer):
    """Base class of the layers: masks, quantized sublayers, `get_config`.

    A subclass keeps its arguments as attributes of the same names, from which
    `get_config` takes them.
    """

    # The call arguments that change the form of the output.
    traced_arguments: tuple[str, ...] = ()

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def compute_output_spec(self, *args, **kwargs):
        call = inspect.signature(self.call).bind(*args, **kwargs).arguments
        if any(call.get(name) for name in self.traced_arguments):
            # Keras traces the call.
            return keras.Operation.compute_output_spec(self, *args, **kwargs)
        return super().compute_output_spec(*args, **kwargs)

    def quantize(self, mode=None, type_check=True, config=None):
        """Does nothing for a layer without sublayers: its weights stay."""
        if list(self._flatten_layers(include_self=False)):
            super().quantize(mode, type_check, config)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            **{
                name: serialize(getattr(self, name))
                for name in _parameters(type(self))
                if hasattr(self, name)
            },
            "dtype": dtype_config(self),
        }


def dtype_config(layer: keras.layers.Layer) -> dict[str, Any]:
    """Serializes the dtype of a layer, and of its quantized sublayers by path.

    A quantized layer can only be loaded with its own dtype policy.
    """
    policy = layer.dtype_policy
    if isinstance(policy, keras.dtype_policies.DTypePolicyMap):
        policy = policy.default_policy
    policies = keras.dtype_policies.DTypePolicyMap(policy.name)
    # The public `Model.layers` has no counterpart in `Layer`.
    for sublayer in layer._flatten_layers(include_self=False):
        if sublayer.quantization_mode is not None:
            policies[sublayer.path] = sublayer.dtype_policy
    return keras.dtype_policies.serialize(policies or policy)


def make_part(
    field: str,
    base: type,
    table: Mapping[str, type],
    part: Any,
    options: dict[str, Any] | None = None,
    /,
    **kwargs: Any,
) -> Any:
    """Makes the mechanism or the binding of an attention.

    Args:
        field: The name of the argument `part`. That of `options` follows.
        base: Base class of the parts.
        table: Dict of names to built-in classes.
        part: A key of `table`, the name of a subclass of `base` that is
            registered with Keras (`"package>Class"`), or an instance.
        options: Dict of arguments of that class, or `None`. They override
            `kwargs`. An instance takes none.
        **kwargs: Arguments of every such class.
    """
    if isinstance(part, dict):
        part = keras.saving.deserialize_keras_object(part)
    if isinstance(part, base):
        if options:
            raise UsageError(
                f"`{field}_options` need a name as `{field}`. Give the options "
                f"to the {base.__name__} instead. Received: {options}",
                field=f"{field}_options",
            )
        return part
    part_class = table.get(part) or keras.saving.get_registered_object(part)
    if not (isinstance(part_class, type) and issubclass(part_class, base)):
        raise UsageError(
            f"Unknown `{field}` {part!r}. Use one of {', '.join(table)}, or "
            f"the name under which a subclass of {base.__name__} is registered "
            "with Keras (import its module first).",
            field=field,
        )
    try:
        return part_class(**{**kwargs, **(options or {})})
    except (TypeError, ValueError) as error:
        if getattr(error, "field", None) in kwargs.keys() - (options or {}):
            raise
        defaults = option_defaults(part_class).items()
        known = ", ".join(f"{name}={value!r}" for name, value in defaults)
        raise UsageError(
            f"`{field}_options` {options} do not fit {part!r}: "
            f"{str(error).rstrip('.')}. Options and defaults of {part!r}: "
            f"{known or 'none'}.",
            field=f"{field}_options",
        ) from None


def option_defaults(part_class: type) -> dict[str, Any]:
    """Returns the options of a class of `make_part` with their defaults."""
    return {
        name: parameter.default
        for name, parameter in _parameters(part_class).items()
        if parameter.default is not parameter.empty
    }


def _parameters(layer_class):
    """The parameters of a layer's `__init__` and of those that it calls."""
    parameters = {}
    for base in reversed(layer_class.__mro__):
        if issubclass(base, BaseLayer):
            parameters |= inspect.signature(base.__init__).parameters
    return {n: p for n, p in parameters.items() if n not in ("self", "kwargs")}


def serialize(part: Any) -> Any:
    """Serializes an object of Keras. A name, and what is serialized, stays."""
    if isinstance(part, (str, dict, tuple)):
        return part
    if inspect.isfunction(part):
        return keras.activations.serialize(part)
    return keras.saving.serialize_keras_object(part)


def with_gradient(forward, gradient):
    """A function with a gradient of its own, on every backend.

    `gradient` is a function of the upstream gradient and of the tensors that
    `forward` takes. It returns a gradient for each of them, or `None`.
    """

    @ops.custom_gradient
    def function(*tensors):
        def backward(*args, upstream=None):
            # PyTorch and TensorFlow pass other arguments than JAX.
            (upstream,) = args if upstream is None else (upstream,)
            return gradient(upstream, *tensors)

        return forward(*tensors), backward

    return function
