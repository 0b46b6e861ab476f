import concurrent.futures
import random

import keras

from tpt_keras.models.sequence_to_sequence import SequenceToSequence


def build_model(config, dtype=None):
    """Builds a new model of a configuration.

    Args:
        config: A `SequenceToSequenceConfig`, such as a `TransformerConfig`.
        dtype: Dtype policy, for instance `"mixed_bfloat16"`. Defaults to
            Keras's global policy.

    Returns:
        A `SequenceToSequence`, such as a `Transformer`.

    Raises:
        UsageError: If no class takes the configuration.

    Example:

    >>> from tpt_keras.models.presets import PRESETS
    >>> type(build_model(PRESETS["tp_transformer_tiny"])).__name__
    'Transformer'
    """
    return SequenceToSequence.class_for(config)(config, dtype=dtype)


def count_weights(config):
    """Counts the weights of a model without allocating them.

    Args:
        config: A `SequenceToSequenceConfig`.

    Returns:
        An integer, `count_params()` of the model.

    Example:

    >>> from tpt_keras.models.presets import PRESETS
    >>> count_weights(PRESETS["transformer"].replace(vocabulary_size=73))
    44188160
    """
    num_layers = getattr(config, "num_layers", 1)
    if num_layers > 1:
        # All layers are alike, and a deep model takes longer to build.
        config = config.replace(num_layers=1)
    total, in_cells = _count(config)
    return total + (num_layers - 1) * in_cells


def _count(config):
    """Counts the weights of a model, and those in its cells."""

    def build_and_count():
        with keras.StatelessScope(initialize_variables=False):
            model = build_model(config)
        cells = map(model.get_layer, config.cell_names)
        return model.count_params(), sum(c.count_params() for c in cells)

    state = random.getstate()
    try:
        # Keras keeps variables without values in a list of their thread, and
        # would give them values later.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            return thread.submit(build_and_count).result()
    finally:
        # Initializers draw seeds, which would change those of other models.
        random.setstate(state)
