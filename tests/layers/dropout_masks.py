from unittest import mock

import keras


def dropout_masks(layer, *inputs):
    """What a layer drops in a training call.

    Args:
        layer: The layer.
        *inputs: The inputs of its call.

    Returns:
        List of boolean arrays, one for every time that dropout is applied:
        true where it keeps what it is given.
    """
    masks = []
    drop = keras.layers.Dropout.call

    def record(dropout, x, training=False):
        dropped = drop(dropout, keras.ops.ones_like(x), training=training)
        masks.append(keras.ops.convert_to_numpy(dropped) != 0.0)
        return x * dropped

    with mock.patch.object(keras.layers.Dropout, "call", record):
        layer(*inputs, training=True)
    return masks
