import dataclasses
import typing

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names
from tpt_keras.layers import POSITIONS
from tpt_keras.layers import make_mechanism
from tpt_keras.models.attention_choices import check_attention
from tpt_keras.models.model_config import ModelConfig


@dataclasses.dataclass(frozen=True)
class TransformerXLConfig(ModelConfig):
    """Everything that makes one `TransformerXL` what it is.

    Args:
        vocabulary: The bytes of a text, each at its token id; see
            `TextSegments`. Empty where there is no text yet: then
            `vocabulary_size` is needed.
        hidden_dim: Size of the hidden states.
        intermediate_dim: Size of the feed-forward's hidden layer.
        num_heads: Number of attention heads; divides `hidden_dim`, if
            `key_dim` is not given.
        num_layers: Number of cells.
        memory_length: Positions that are remembered of earlier segments; `0`
            for a model that knows its segment alone.
        same_length: Whether every position sees as many positions,
            `memory_length`, itself included: for an evaluation in which the
            first of a segment know as much as the last. Defaults to `False`:
            a position sees all of its segment before it, and the memory.
        binding: How a filler is bound to its role, see `TransformerConfig`.
        attention: How queries meet keys, see there. The default is
            Transformer-XL's.
        attention_options: What that mechanism takes, see there.
        key_dim: Size of each head's query, key and value. Defaults to its
            share of `hidden_dim`.
        positions: What the embedding adds for a symbol's place in its segment,
            see there. Defaults to `"none"`: with a memory, a mechanism has to
            know by itself how far symbols stand from each other.
        layer_norm_epsilon: Epsilon of every layer norm.
        **kwargs: See `ModelConfig`.

    Raises:
        UsageError: If a value is of a wrong type or makes no sense.
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
        """Most symbols of a segment, or `None` where there is no limit."""
        return make_mechanism(self.attention, self.attention_options).max_length

    @property
    def cell_names(self):
        return tuple(f"cell_{index}" for index in range(self.num_layers))

    def __post_init__(self):
        super().__post_init__()
        check_names("positions", [self.positions], POSITIONS)
        for name in ("memory_length", "key_dim"):
            if getattr(self, name) < 0:
                raise UsageError(
                    f"{name} must not be negative. Received: "
                    f"{getattr(self, name)}."
                )
        mechanism = check_attention(self, self.key_dim)
        if self.memory_length and (
            mechanism.max_length is not None or self.positions != "none"
        ):
            raise UsageError(
                f"Symbols that are known by their places in a segment, by "
                f"attention={self.attention} or positions={self.positions}, "
                f"leave no memory: memory_length must be 0. Received: "
                f"{self.memory_length}."
            )
        if self.same_length and not self.memory_length:
            raise UsageError("same_length needs a memory_length.")
        if not self.layer_norm_epsilon > 0.0:
            raise UsageError(
                "layer_norm_epsilon must be positive. Received: "
                f"{self.layer_norm_epsilon}."
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
