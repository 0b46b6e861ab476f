import dataclasses
import typing

from tpt_keras.errors import UsageError
from tpt_keras.layers.bindings import make_binding
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
        num_heads: Number of attention heads; divides `hidden_dim`.
        num_layers: Number of cells.
        memory_length: Positions that are remembered of earlier segments.
        same_length: Whether every position sees as many positions,
            `memory_length`, itself included: for an evaluation in which the
            first of a segment know as much as the last. Defaults to `False`:
            a position sees all of its segment before it, and the memory.
        binding: How a filler is bound to its role, see `TransformerConfig`.
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
        "memory_length",
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

    @property
    def cell_names(self):
        return tuple(f"cell_{index}" for index in range(self.num_layers))

    def __post_init__(self):
        super().__post_init__()
        try:
            make_binding(self.binding)
        except ValueError as error:
            raise UsageError(str(error)) from None
        if self.hidden_dim % self.num_heads:
            raise UsageError(
                f"num_heads must divide hidden_dim. Received: num_heads="
                f"{self.num_heads}, hidden_dim={self.hidden_dim}."
            )
        if not self.layer_norm_epsilon > 0.0:
            raise UsageError(
                "layer_norm_epsilon must be positive. Received: "
                f"{self.layer_norm_epsilon}."
            )


# The paper's models of characters, at the 204 symbols of enwik8.
XL_PRESETS = {
    "transformer_xl_base": TransformerXLConfig(vocabulary_size=204),
    "transformer_xl_large": TransformerXLConfig(
        vocabulary_size=204,
        hidden_dim=1024,
        intermediate_dim=3072,
        num_layers=24,
        memory_length=3800,
    ),
}
