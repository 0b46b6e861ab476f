import keras
from keras import ops

from tpt_keras.layers.bindings.binding import Binding


@keras.saving.register_keras_serializable("tpt_keras")
class HadamardBinding(Binding):
    """The elementwise product, the diagonal of the tensor product.

    This is the TP-Transformer's binding (equation 4 of Schlag et al., 2019):

        bound = filler * role

    The arguments are those of `Binding`.

    Example:

    >>> binding = HadamardBinding()
    >>> filler = keras.random.normal((3, 10, 2, 8))
    >>> binding(filler, filler).shape
    (3, 10, 2, 8)
    """

    def call(self, filler, role):
        return ops.multiply(filler, role)
