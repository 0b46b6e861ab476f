"""Bindings of fillers to roles. A new one is a file and a row of `BINDINGS`."""

from tpt_keras.layers.bindings.binding import Binding
from tpt_keras.layers.bindings.binding import HadamardBinding
from tpt_keras.layers.bindings.binding import NoBinding
from tpt_keras.layers.bindings.discrete_binding import DiscreteBinding
from tpt_keras.layers.bindings.tensor_binding import TensorBinding
from tpt_keras.layers.composite_layer import make_choice

BINDINGS = {
    "none": NoBinding,
    "hadamard": HadamardBinding,
    "tensor": TensorBinding,
    "discrete": DiscreteBinding,
}


def make_binding(binding, options=None, /, **kwargs):
    """Makes a binding.

    Args:
        binding: A key of `BINDINGS`, the registered name of a `Binding`
            (`"package>Class"`), or an instance.
        options: Dict of arguments of that binding, or `None`.
        **kwargs: Keras's base layer arguments.

    Returns:
        A `Binding`.

    Raises:
        UsageError: If the binding is unknown or does not take the options.
    """
    return make_choice("binding", Binding, BINDINGS, binding, options, **kwargs)
