from tpt_keras.models.attentional_lstm import AttentionalLSTM
from tpt_keras.models.simple_lstm import SimpleLSTM
from tpt_keras.models.transformer import Transformer

# Every class of models; each takes its own configurations.
MODELS = (Transformer, SimpleLSTM, AttentionalLSTM)


def model_class(config):
    """The class of the model that a configuration is of.

    Args:
        config: A `ModelConfig`, such as `TransformerConfig`.

    Returns:
        A subclass of `SequenceToSequence`.
    """
    [found] = [model for model in MODELS if model.takes(config)]
    return found


def build_model(config, dtype=None):
    """A new, untrained model of a configuration.

    Args:
        config: A `ModelConfig`, such as `TransformerConfig`.
        dtype: Dtype policy, for instance `"mixed_bfloat16"`. Defaults to
            Keras's global policy.

    Returns:
        A `SequenceToSequence`: a `Transformer` of a `TransformerConfig`.

    Example:

    >>> from tpt_keras.models.presets import PRESETS
    >>> type(build_model(PRESETS["tp_transformer_tiny"])).__name__
    'Transformer'
    """
    return model_class(config)(config, dtype=dtype)
