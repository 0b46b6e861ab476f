import dataclasses
import typing

from tpt_keras.errors import UsageError
from tpt_keras.layers import POSITIONS
from tpt_keras.layers import make_mechanism
from tpt_keras.models.configs import AttentionConfig
from tpt_keras.settings import setting


@dataclasses.dataclass(frozen=True)
class TransformerXLConfig(AttentionConfig):
    """The configuration of a `TransformerXL`.

    The fields of `AttentionConfig` have Transformer-XL's defaults.

    Args:
        vocabulary: The bytes of a text, each at its token id. Empty without a
            text; then `vocabulary_size` is needed.
        memory_length: Number of earlier positions in the memory; `0` for no
            memory.
        same_length: Whether every position attends to the last
            `memory_length` positions alone, itself included, so that the first
            of a segment knows as much as the last. By default it attends to
            the memory and all earlier positions of its segment.
        key_dim: Size of each head's query, key and value. Defaults to its
            share of `hidden_dim`.
        positions: See `AttentionConfig`. Defaults to `"none"`: with a memory,
            the mechanism has to encode relative positions, and no sinusoids
            are added.

    See `AttentionConfig` for the other arguments.

    Raises:
        UsageError: If a value is invalid.
    """

    KIND: typing.ClassVar = "transformer_xl"

    num_layers: int = setting(12, minimum=1)
    memory_length: int = setting(512, minimum=0)
    same_length: bool = setting(False)
    binding: str = setting("none")
    attention: str = setting("transformer_xl")
    key_dim: int = setting(0, minimum=0)
    positions: str = setting("none", choices=POSITIONS)

    @property
    def max_length(self) -> int | None:
        """Longest segment in symbols, or `None` without a limit."""
        return make_mechanism(self.attention, self.attention_options).max_length

    def __post_init__(self):
        super().__post_init__()
        mechanism = self.check_attention(self.key_dim)
        if self.memory_length and (
            mechanism.max_length is not None or self.positions == "sinusoidal"
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
