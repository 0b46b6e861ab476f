"""Bindings of fillers to roles. A new one is a file here, a row of `BINDINGS`.

"Tensor Product Attention" (Zhang et al., 2025; arXiv:2501.06425) is none of
them: it factors queries, keys and values, and has no roles.
"""

from typing import Any

from tpt_keras.errors import UsageError
from tpt_keras.layers.base_layer import make_part
from tpt_keras.layers.bindings.binding import Binding
from tpt_keras.layers.bindings.binding import NoBinding
from tpt_keras.layers.bindings.circular_convolution_binding import (
    CircularConvolutionBinding,
)
from tpt_keras.layers.bindings.discrete_binding import DiscreteBinding
from tpt_keras.layers.bindings.gated_binding import GatedBinding
from tpt_keras.layers.bindings.hadamard_binding import HadamardBinding
from tpt_keras.layers.bindings.tensor_binding import TensorBinding

__all__ = [
    "BINDINGS",
    "Binding",
    "CircularConvolutionBinding",
    "DiscreteBinding",
    "GatedBinding",
    "HadamardBinding",
    "NoBinding",
    "TensorBinding",
    "make_binding",
    "with_gate",
]

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
    """Makes a `Binding` of a name or an instance, and a dict of options.

    See `TPMultiHeadAttention`. Raises a `UsageError` with the field at fault.
    """
    return make_part(
        binding,
        options,
        base=Binding,
        table=BINDINGS,
        field="binding",
        options_field="binding_options",
        **kwargs,
    )


def with_gate(binding: str | Binding) -> str:
    """Returns the binding of `use_gate=True`, given the `binding` beside it."""
    if binding not in ("hadamard", "none", "gated"):
        raise UsageError(
            '`use_gate=True` is the binding "gated" and takes no other one. '
            f"Received: binding={binding!r}",
            field="use_gate",
        )
    return "gated"
