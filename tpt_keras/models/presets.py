"""The named variants. A variant is a row of this table and nothing more."""

from tpt_keras.models.lstm_config import LSTMConfig
from tpt_keras.models.transformer_config import TransformerConfig

PRESETS = {
    # The paper's baseline (section 4.1).
    "transformer": TransformerConfig(binding="none", bind_embeddings=False),
    # The paper's model.
    "tp_transformer": TransformerConfig(),
    # Its smaller hidden size; the paper's count of weights leaves no room for
    # an embedding role in B and C.
    "tp_transformer_b": TransformerConfig(
        hidden_dim=480, intermediate_dim=1920, bind_embeddings=False
    ),
    # Its smaller filter.
    "tp_transformer_c": TransformerConfig(
        intermediate_dim=512, bind_embeddings=False
    ),
    # The baselines of Saxton et al. (2019), who made the data.
    "lstm": LSTMConfig(),
    "lstm_attention": LSTMConfig(attention="additive", thinking_steps=0),
    # For the demo and for tests: learns place_value in minutes on two cores.
    "tp_transformer_tiny": TransformerConfig(
        hidden_dim=128, intermediate_dim=256, num_heads=4, num_layers=2
    ),
}
