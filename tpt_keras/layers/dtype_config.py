import keras


def dtype_config(layer):
    """What the config of a layer that holds layers says of its dtype.

    Its own dtype policy and, by their paths, those of the layers in it that
    were quantized, or it would be loaded with layers of floats, which the
    saved weights do not fit.

    Args:
        layer: A Keras layer.

    Returns:
        A serialized dtype policy, or map of dtype policies.
    """
    policy = layer.dtype_policy
    if isinstance(policy, keras.dtype_policies.DTypePolicyMap):
        policy = policy.default_policy
    policies = keras.dtype_policies.DTypePolicyMap(policy.name)
    # The public `Model.layers` has no counterpart in `Layer`.
    for sublayer in layer._flatten_layers(include_self=False):
        if sublayer.quantization_mode is not None:
            policies[sublayer.path] = sublayer.dtype_policy
    return keras.dtype_policies.serialize(policies or policy)
