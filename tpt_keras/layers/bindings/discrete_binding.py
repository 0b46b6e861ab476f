from typing import Any

import keras
from keras import ops

from tpt_keras.errors import check_positive_integer
from tpt_keras.layers.bindings.binding import Binding


@keras.saving.register_keras_serializable("tpt_keras")
class DiscreteBinding(Binding):
    """Roles from a dictionary (TPT-Summ; Jiang et al., 2021).

    A role is a mixture of unit vectors from a learned dictionary that the
    heads share. The filler is added to its product with the role:

        role = softmax(W_r x + b_r) dictionary
        bound = filler + filler * role

    Args:
        num_roles: Number of roles in the dictionary. The paper uses 20 and 50.
            Defaults to `20`.
        **kwargs: Keras's base layer arguments.

    The call arguments are those of `Binding`.

    Example:

    >>> binding = DiscreteBinding(num_roles=5)
    >>> filler = keras.random.normal((3, 10, 2, 8))
    >>> binding.build(filler.shape)
    >>> role = binding.role(keras.random.normal((3, 10, 2, 5)))
    >>> binding(filler, role).shape
    (3, 10, 2, 8)
    """

    def __init__(self, num_roles: int = 20, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive_integer("num_roles", num_roles)
        self.num_roles = num_roles

    def build(self, filler_shape):
        super().build(filler_shape)
        self.dictionary = self.add_weight(
            name="dictionary",
            shape=(self.num_roles, self.value_dim),
            initializer="random_normal",
        )

    @property
    def role_dim(self) -> int:
        return self.num_roles

    def role(self, mapped):
        # The softmax and the norms are in float32 under every dtype policy.
        mixture = ops.softmax(ops.cast(mapped, "float32"), axis=-1)
        dictionary = ops.normalize(
            ops.cast(self.dictionary, "float32"), axis=-1
        )
        return ops.matmul(
            ops.cast(mixture, mapped.dtype), ops.cast(dictionary, mapped.dtype)
        )

    def call(self, filler, role):
        return ops.add(filler, ops.multiply(filler, role))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_roles": self.num_roles}
