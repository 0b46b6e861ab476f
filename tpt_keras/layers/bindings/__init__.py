"""How fillers are bound to roles. A binding is a file and a row of a table."""

from tpt_keras.layers.bindings.binding import Binding
from tpt_keras.layers.bindings.discrete_binding import DiscreteBinding
from tpt_keras.layers.bindings.hadamard_binding import HadamardBinding
from tpt_keras.layers.bindings.no_binding import NoBinding
from tpt_keras.layers.bindings.tensor_binding import TensorBinding
from tpt_keras.layers.choices import make_choice

BINDINGS = {
    "none": NoBinding,
    "hadamard": HadamardBinding,
    "tensor": TensorBinding,
    "discrete": DiscreteBinding,
}


def make_binding(name, options=None, /, **kwargs):
    """A binding by its name.

    Args:
        name: A key of `BINDINGS`, or the name under which a subclass of
            `Binding` is registered with Keras (`"package>Class"`).
        options: Dict of what that binding alone takes, or `None`.
        **kwargs: Keras's base layer arguments.

    Returns:
        A `Binding`.

    Raises:
        ValueError: If there is no such binding, or it takes no such options.
    """
    return make_choice("binding", Binding, BINDINGS, name, options, **kwargs)
