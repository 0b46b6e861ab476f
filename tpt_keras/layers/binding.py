"""How an attention head's filler is bound to its role.

The one place where binding happens: the uncached and the cached attention
both come through `bind`.
"""

from keras import ops

BINDINGS = ("none", "hadamard", "tensor")


def check_binding(binding):
    """Returns `binding`, or raises a `ValueError` that lists the known ones."""
    if binding not in BINDINGS:
        raise ValueError(
            f"Unknown binding {binding!r}. Known bindings: "
            f"{', '.join(BINDINGS)}."
        )
    return binding


def has_role(binding):
    """Whether `binding` needs a role vector at all."""
    return binding != "none"


def bound_dim(value_dim, binding):
    """Size of one head's bound vector, which the output map then contracts."""
    return value_dim * value_dim if binding == "tensor" else value_dim


def bind(filler, role, binding):
    """Binds every head's filler to its role.

    `"hadamard"` is the paper's equation 4: the elementwise product, which is
    the diagonal of the tensor product. `"tensor"` keeps the whole product
    (section 7 of the paper), flattened. `"none"` is standard attention.

    Args:
        filler: What the heads retrieved, `(..., num_heads, value_dim)`.
        role: The roles, same shape as `filler`; ignored for `"none"`.
        binding: One of `BINDINGS`.

    Returns:
        Tensor `(..., num_heads, bound_dim(value_dim, binding))`.
    """
    if not has_role(binding):
        return filler
    if binding == "hadamard":
        return ops.multiply(filler, role)
    product = ops.multiply(
        ops.expand_dims(filler, -1), ops.expand_dims(role, -2)
    )  # (..., num_heads, value_dim, value_dim)
    value_dim = filler.shape[-1]
    return ops.reshape(
        product, (*ops.shape(filler)[:-1], value_dim * value_dim)
    )
