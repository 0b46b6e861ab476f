import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from tpt_keras.errors import check_choice
from tpt_keras.layers.bindings.binding import Binding
from tpt_keras.typing import Tensor


@keras.saving.register_keras_serializable("tpt_keras")
class NormalMixture(keras.initializers.RandomNormal):
    """A mixture of two normals, one around 1 and one around -1.

    Both have the variance `1 / d`, where `d` is the last size of the shape.
    The mean is 0, and nearly no number is near 0. The authors of HLB draw the
    vectors of their classical tasks from it (Alam et al., 2024).

    Args:
        seed: See `keras.initializers.RandomNormal`.

    Example:

    >>> roles = NormalMixture()((2, 400))
    >>> bool(ops.min(ops.abs(roles)) > 0.5)
    True
    """

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed=seed)

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> Tensor:
        draws = keras.random.normal((2, *shape), dtype=dtype, seed=self.seed)
        noise = ops.divide(draws[1], math.sqrt(shape[-1]))
        return ops.add(ops.sign(draws[0]), noise)

    def get_config(self) -> dict[str, Any]:
        return {"seed": self._init_seed}


_ROLE_STARTS = {
    "one": keras.initializers.Ones,
    "normal_mixture": NormalMixture,
}


@keras.saving.register_keras_serializable("tpt_keras")
class HadamardBinding(Binding):
    """The elementwise product, the diagonal of the tensor product.

    This is the TP-Transformer's binding (equation 4 of Schlag et al., 2019):

        bound = filler * role

    Args:
        role_start: The roles of a new layer, which are then equal for all
            queries: `"one"`, with which attention starts as one without roles,
            or `"normal_mixture"`, vectors of a `NormalMixture` (HLB). The role
            map starts with a kernel of zeros, and has a bias in any case. By
            default its initializers are those of the other maps.
        **kwargs: Keras's base layer arguments.

    The call arguments are those of `Binding`.

    Example:

    >>> binding = HadamardBinding()
    >>> filler = keras.random.normal((3, 10, 2, 8))
    >>> binding(filler, filler).shape
    (3, 10, 2, 8)
    """

    def __init__(self, role_start: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if role_start is not None:
            check_choice("role_start", role_start, _ROLE_STARTS)
        self.role_start = role_start

    @property
    def role_map_arguments(self) -> dict[str, Any]:
        if self.role_start is None:
            return {}
        return {
            "use_bias": True,
            "kernel_initializer": "zeros",
            "bias_initializer": _ROLE_STARTS[self.role_start](),
        }

    def call(self, filler: Tensor, role: Tensor) -> Tensor:
        return ops.multiply(filler, role)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "role_start": self.role_start}
