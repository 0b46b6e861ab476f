"""The named variants.

A variant is a row of `PRESETS` and nothing more.
"""

from tpt_keras.models.configs import LSTMConfig
from tpt_keras.models.configs import TransformerConfig

# Numbers and times in answers units first, the places of digits and rotary
# positions (docs/lab.md); few decoder layers, because answering takes a step
# for each character.
NUMBERS = TransformerConfig(
    hidden_dim=192,
    intermediate_dim=768,
    num_heads=6,
    num_decoder_layers=2,
    bind_embeddings=False,
    positions="rotary",
    vocabulary="mathematics_words",
    digit_places=True,
    answer_order="minutes_first",
)

PRESETS: dict = {
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
    # The full tensor product in place of its diagonal (the paper's section 7).
    "tp_transformer_tensor": TransformerConfig(
        binding="tensor", bind_embeddings=False
    ),
    # A product of low rank in its place (appendix A.2).
    "tp_transformer_low_rank": TransformerConfig(
        binding="tensor", binding_options={"rank": 64}, bind_embeddings=False
    ),
    # Roles from a dictionary (TPT-Summ; Jiang et al., 2021).
    "tp_transformer_discrete": TransformerConfig(
        binding="discrete", bind_embeddings=False
    ),
    # Gated attention (Qiu et al., 2025), a Transformer's by now.
    "transformer_gated": TransformerConfig(
        binding="gated", bind_embeddings=False
    ),
    # Its gate is one number a head.
    "transformer_gated_per_head": TransformerConfig(
        binding="gated",
        binding_options={"per_head": True},
        bind_embeddings=False,
    ),
    # Holographic reduced representations (Plate, 1995).
    "tp_transformer_circular_convolution": TransformerConfig(
        binding="circular_convolution", bind_embeddings=False
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
    # The dual attention transformer of two layers (Altabaa and Lafferty, 2024),
    # with relations in encoder and decoder.
    "dual_attention": TransformerConfig(
        binding="none",
        bind_embeddings=False,
        attention="relational",
        hidden_dim=128,
        intermediate_dim=256,
        num_heads=8,
        num_layers=2,
        dropout=0.1,
    ),
    "tp_transformer_numbers": NUMBERS,
    # The baselines of Saxton et al. (2019), who made the data.
    "lstm": LSTMConfig(),
    "lstm_attention": LSTMConfig(attention="additive", thinking_steps=0),
    # For the demo and for tests: learns place_value in minutes on two cores.
    "tp_transformer_tiny": TransformerConfig(
        hidden_dim=128, intermediate_dim=256, num_heads=4, num_layers=2
    ),
    # The trained solver.
    "tp_transformer_mathematics": NUMBERS.replace(
        hidden_dim=320,
        intermediate_dim=1216,
        num_heads=8,
        answer_order="units_first",
    ),
}
# Those with weights, in `saved_models/`.
TRAINED_PRESETS = ("tp_transformer_mathematics",)
# Fields of a trained model that may change: no weight depends on them.
FREE_FIELDS = (
    "dropout",
    "initialization",
    "max_answer_length",
    "max_question_length",
)
