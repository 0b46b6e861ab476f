"""Bindings of fillers to roles. A new one is a class here, a row of `BINDINGS`.

"Tensor Product Attention" (Zhang et al., 2025; arXiv:2501.06425) is none of
them: it factors queries, keys and values, and has no roles.
"""

from typing import Any

from tpt_keras.errors import UsageError
from tpt_keras.layers.base_layer import make_part
from tpt_keras.layers.bindings.binding import Binding
from tpt_keras.layers.bindings.binding import CircularConvolutionBinding
from tpt_keras.layers.bindings.binding import DiscreteBinding
from tpt_keras.layers.bindings.binding import GatedBinding
from tpt_keras.layers.bindings.binding import HadamardBinding
from tpt_keras.layers.bindings.binding import NoBinding
from tpt_keras.layers.bindings.tensor_binding import TensorBinding

BINDINGS = {
    "none": NoBinding,
    "hadamard": HadamardBinding,
    "tensor": TensorBinding,
    "discrete": DiscreteBinding,
    "gated": GatedBinding,
    "circular_convolution": CircularConvolutionBinding,
}


def make_binding(
    binding: str | Binding,
    options: dict[str, Any] | None = None,
    /,
    **kwargs: Any,
) -> Binding:
    """Makes a `Binding` of a name or an instance, and of options.

    See `TPMultiHeadAttention`. Raises a `UsageError` with the field at fault.
    """
    return make_part("binding", Binding, BINDINGS, binding, options, **kwargs)


def with_gate(binding: str | Binding) -> str:
    """Returns the binding of `use_gate=True`, given the `binding` beside it."""
    if binding not in ("hadamard", "none", "gated"):
        raise UsageError(
            '`use_gate=True` is the binding "gated" and takes no other one. '
            f"Received: binding={binding!r}",
            field="use_gate",
        )
    return "gated"
