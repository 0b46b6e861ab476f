from typing import Any

import keras
from keras import ops

from tpt_keras.errors import check_positive_integer
from tpt_keras.layers.bindings.binding import Binding
from tpt_keras.layers.projection import Projection
from tpt_keras.typing import Shape
from tpt_keras.typing import Tensor


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

    def role(self, mapped: Tensor) -> Tensor:
        gate = ops.sigmoid(mapped)
        if self.per_head:
            gate = ops.repeat(gate, self.value_dim, axis=-1)
        return gate

    def call(self, filler: Tensor, role: Tensor) -> Tensor:
        return ops.multiply(filler, role)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "per_head": self.per_head}


@keras.saving.register_keras_serializable("tpt_keras")
class HybridGatedBinding(Binding):
    """Gated attention whose gate also sees what was retrieved.

    A map of low rank reads the fillers of all heads, beside the role map,
    which reads the query:

        role = W_r x + b_r
        bound = filler * sigmoid(role + U V filler)

    The gate follows a description of arXiv:2608.11805. The paper itself could
    not be read, so its rank, its sharing among heads and its initialization
    may differ.

    Args:
        rank: Rank of the map of the fillers, the size of `V filler`. Defaults
            to `16`.
        **kwargs: Keras's base layer arguments.

    The call arguments are those of `Binding`.

    Example:

    >>> filler = keras.random.normal((3, 10, 2, 8))
    >>> HybridGatedBinding(rank=4)(filler, filler).shape
    (3, 10, 2, 8)
    """

    role_before_value = True

    def __init__(self, rank: int = 16, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive_integer("rank", rank)
        self.rank = rank

    def build(self, filler_shape: Shape) -> None:
        super().build(filler_shape)
        heads = (self.num_heads, self.value_dim)
        self.gate_down = self._projection(
            (self.rank,), "gate_down", (None, *heads), num_input_axes=2
        )
        self.gate_up = self._projection(heads, "gate_up", (None, self.rank))

    def _projection(self, output_shape, name, input_shape, **kwargs):
        layer = Projection(
            output_shape,
            use_bias=False,
            dtype=self.dtype_policy,
            name=name,
            **kwargs,
        )
        layer.build(input_shape)
        return layer

    def call(self, filler: Tensor, role: Tensor) -> Tensor:
        of_filler = self.gate_up(self.gate_down(filler))
        return ops.multiply(filler, ops.sigmoid(ops.add(role, of_filler)))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rank": self.rank}
