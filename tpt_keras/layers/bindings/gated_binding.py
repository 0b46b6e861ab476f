from typing import Any

import keras
from keras import ops

from tpt_keras.layers.bindings.binding import Binding


@keras.saving.register_keras_serializable("tpt_keras")
class GatedBinding(Binding):
    """Gated attention (Qiu et al., 2025): a role between zero and one.

    It is hadamard binding with a sigmoid:

        role = sigmoid(W_r x + b_r)
        bound = filler * role

    This is `keras.layers.MultiHeadAttention(use_gate=True)`, and its weights
    have the same order: the role map's are before those of the value map.

    Args:
        per_head: Whether a role is a single number, equal in all elements.
            Defaults to `False`.
        **kwargs: Keras's base layer arguments.

    The call arguments are those of `Binding`.

    Example:

    >>> binding = GatedBinding(per_head=True)
    >>> filler = keras.random.normal((3, 10, 2, 8))
    >>> binding.build(filler.shape)
    >>> role = binding.role(keras.random.normal((3, 10, 2, 1)))
    >>> binding(filler, role).shape
    (3, 10, 2, 8)
    """

    role_before_value = True

    def __init__(self, per_head: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.per_head = per_head

    @property
    def role_dim(self) -> int:
        return 1 if self.per_head else self.value_dim

    def role(self, mapped):
        gate = ops.sigmoid(mapped)
        if self.per_head:
            gate = ops.repeat(gate, self.value_dim, axis=-1)
        return gate

    def call(self, filler, role):
        return ops.multiply(filler, role)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "per_head": self.per_head}
