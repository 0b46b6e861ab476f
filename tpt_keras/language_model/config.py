import dataclasses
import typing

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.layers import POSITIONS
from tpt_keras.layers import make_mechanism
from tpt_keras.models.configs import ModelConfig
from tpt_keras.models.configs import check_attention


@dataclasses.dataclass(frozen=True)
class TransformerXLConfig(ModelConfig):
    """The configuration of a `TransformerXL`.

    Args:
        vocabulary: The bytes of a text, each at its token id. Empty without a
            text; then `vocabulary_size` is needed.
        hidden_dim: Size of the hidden states.
        intermediate_dim: Size of the feed-forward's hidden layer.
        num_heads: Number of attention heads. It divides `hidden_dim`, unless
            `key_dim` is given.
        num_layers: Number of cells.
        memory_length: Number of earlier positions in the memory; `0` for no
            memory.
        same_length: Whether every position attends to the last
            `memory_length` positions alone, itself included, so that the first
            of a segment knows as much as the last. By default it attends to
            the memory and all earlier positions of its segment.
        binding: Name of the binding, see `TransformerConfig`.
        attention: Name of the attention mechanism, see `TransformerConfig`.
            Defaults to Transformer-XL's.
        attention_options: Arguments of the mechanism.
        key_dim: Size of each head's query, key and value. Defaults to its
            share of `hidden_dim`.
        positions: Position encoding of the embedding, see `TransformerConfig`.
            Defaults to `"none"`: with a memory, the mechanism has to encode
            relative positions.
        layer_norm_epsilon: Epsilon of every layer norm.
        **kwargs: See `ModelConfig`.

    Raises:
        UsageError: If a value is invalid.
    """

    KIND: typing.ClassVar = "transformer_xl"
    SIZES: typing.ClassVar = (
        "hidden_dim",
        "intermediate_dim",
        "num_heads",
        "num_layers",
        *ModelConfig.SIZES,
    )

    hidden_dim: int = 512
    intermediate_dim: int = 2048
    num_heads: int = 8
    num_layers: int = 12
    memory_length: int = 512
    same_length: bool = False
    binding: str = "none"
    layer_norm_epsilon: float = 1e-5
    attention: str = "transformer_xl"
    # A dict cannot be hashed.
    attention_options: dict = dataclasses.field(
        default_factory=dict, hash=False
    )
    key_dim: int = 0
    positions: str = "none"

    @property
    def max_length(self):
        """Longest segment in symbols, or `None` without a limit."""
        return make_mechanism(self.attention, self.attention_options).max_length

    @property
    def cell_names(self):
        return tuple(f"cell_{index}" for index in range(self.num_layers))

    def __post_init__(self):
        super().__post_init__()
        check_choice("positions", self.positions, POSITIONS)
        for name in ("memory_length", "key_dim"):
            if getattr(self, name) < 0:
                raise UsageError(
                    f"`{name}` must not be negative. Received: "
                    f"{getattr(self, name)}.",
                    field=name,
                )
        mechanism = check_attention(self, self.key_dim)
        if self.memory_length and (
            mechanism.max_length is not None or self.positions != "none"
        ):
            raise UsageError(
                f"A memory needs relative positions. With attention="
                f"{self.attention} and positions={self.positions}, "
                "`memory_length` must be 0. Received: "
                f"{self.memory_length}.",
                field="memory_length",
            )
        if self.same_length and not self.memory_length:
            raise UsageError(
                "`same_length` needs a `memory_length`.", field="same_length"
            )
        if not self.layer_norm_epsilon > 0.0:
            raise UsageError(
                "`layer_norm_epsilon` must be positive. Received: "
                f"{self.layer_norm_epsilon}.",
                field="layer_norm_epsilon",
            )


XL_PRESETS = {
    # The paper's models of characters, at the 204 symbols of enwik8.
    "transformer_xl_base": TransformerXLConfig(vocabulary_size=204),
    "transformer_xl_large": TransformerXLConfig(
        vocabulary_size=204,
        hidden_dim=1024,
        intermediate_dim=3072,
        num_layers=24,
        memory_length=3800,
    ),
    # The Tensorized Transformer (Ma et al., 2019) of the Penn Treebank's
    # 10,000 words: windows of 32, whose map is the output map.
    "tensorized_transformer": TransformerXLConfig(
        vocabulary_size=10_000,
        hidden_dim=256,
        intermediate_dim=2100,
        num_heads=1,
        key_dim=40,
        num_layers=3,
        memory_length=0,
        attention="multi_linear",
        attention_options={"max_length": 32, "output_dim": 256},
        positions="sinusoidal",
    ),
}
