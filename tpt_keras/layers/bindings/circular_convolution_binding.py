import math

import keras
from keras import ops

from tpt_keras.layers.bindings.binding import Binding


@keras.saving.register_keras_serializable("tpt_keras")
class CircularConvolutionBinding(Binding):
    """Circular convolution (holographic reduced representations; Plate, 1995).

    An element of the bound vector is the sum of a wrapped diagonal of the
    tensor product of filler and role:

        role = (W_r x + b_r) / sqrt(value_dim)
        bound[k] = sum_j filler[j] role[(k - j) mod value_dim]

    As in Plate's representations, the role's elements have a variance of about
    `1 / value_dim`, so that bound vectors are as long as fillers. The Fourier
    transforms are in float32 under mixed precision.

    The arguments are those of `Binding`.

    Example:

    >>> filler = keras.random.normal((3, 10, 2, 8))
    >>> CircularConvolutionBinding()(filler, filler).shape
    (3, 10, 2, 8)
    """

    def role(self, mapped):
        return ops.divide(mapped, math.sqrt(self.value_dim))

    def call(self, filler, role):
        dtype = keras.backend.result_type(filler.dtype, "float32")
        (a, b), (c, d) = (
            ops.rfft(ops.cast(x, dtype)) for x in (filler, role)
        )  # real and imaginary parts
        product = (
            ops.subtract(ops.multiply(a, c), ops.multiply(b, d)),
            ops.add(ops.multiply(a, d), ops.multiply(b, c)),
        )
        bound = ops.irfft(product, fft_length=self.value_dim)
        return ops.cast(bound, filler.dtype)
