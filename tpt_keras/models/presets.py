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
    # The full tensor product in place of its diagonal (the paper's section 7);
    # with `binding_options={"rank": 64}` what appendix A.2 makes of it.
    "tp_transformer_tensor": TransformerConfig(
        binding="tensor", bind_embeddings=False
    ),
    # Roles from a dictionary (TPT-Summ; Jiang et al., 2021).
    "tp_transformer_discrete": TransformerConfig(
        binding="discrete", bind_embeddings=False
    ),
    # Relative positions (Shaw et al., 2018) in place of sinusoids.
    "tp_transformer_relative": TransformerConfig(
        attention="relative", positions="none"
    ),
    # Transformer-XL's relative positions (Dai et al., 2019).
    "tp_transformer_xl": TransformerConfig(
        attention="transformer_xl", positions="none"
    ),
    # Multi-linear attention (the Tensorized Transformer; Ma et al., 2019).
    "tp_transformer_multi_linear": TransformerConfig(attention="multi_linear"),
    # The baselines of Saxton et al. (2019), who made the data.
    "lstm": LSTMConfig(),
    "lstm_attention": LSTMConfig(attention="additive", thinking_steps=0),
    # For the demo and for tests: learns place_value in minutes on two cores.
    "tp_transformer_tiny": TransformerConfig(
        hidden_dim=128, intermediate_dim=256, num_heads=4, num_layers=2
    ),
}
