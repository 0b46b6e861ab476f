import itertools

import keras
from keras import ops


class Rematerializable:
    """What `keras.RematScope` lacks on TensorFlow, as a mixin of layers.

    There it gives gradients to positional tensors alone, without a word about
    the others, and in a graph refuses keyword arguments. What has no gradient
    goes around it.
    """

    def rematerialized_call(self, layer_call, *args, **kwargs):
        arguments = keras.tree.flatten((args, kwargs))
        has_gradient = [
            ops.is_tensor(argument)
            and keras.backend.is_float_dtype(argument.dtype)
            for argument in arguments
        ]

        def call_with(*tensors):
            tensors = iter(tensors)
            merged = [
                next(tensors) if has else argument
                for has, argument in zip(has_gradient, arguments)
            ]
            args_, kwargs_ = keras.tree.pack_sequence_as((args, kwargs), merged)
            return layer_call(*args_, **kwargs_)

        call = super().rematerialized_call(call_with, *args, **kwargs)
        return lambda *args, **kwargs: call(
            *itertools.compress(
                keras.tree.flatten((args, kwargs)), has_gradient
            )
        )
