import dataclasses

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names
from tpt_keras.errors import check_positive_integer
from tpt_keras.layers.bindings import make_binding


@dataclasses.dataclass(frozen=True)
class TransformerXLConfig:
    """Everything that makes one `TransformerXL` what it is.

    Args:
        vocabulary_size: Number of symbols.
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
        dropout: Dropout rate, everywhere.
        layer_norm_epsilon: Epsilon of every layer norm.

    Raises:
        UsageError: If a value makes no sense.
    """

    vocabulary_size: int
    hidden_dim: int = 512
    intermediate_dim: int = 2048
    num_heads: int = 8
    num_layers: int = 12
    memory_length: int = 512
    same_length: bool = False
    binding: str = "none"
    dropout: float = 0.0
    layer_norm_epsilon: float = 1e-5

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if field.type is int:
                check_positive_integer(field.name, getattr(self, field.name))
        if not isinstance(self.same_length, bool):
            raise UsageError(
                "same_length must be true or false. Received: "
                f"{self.same_length!r}."
            )
        try:
            make_binding(self.binding)
        except ValueError as error:
            raise UsageError(str(error)) from None
        if self.hidden_dim % self.num_heads:
            raise UsageError(
                f"num_heads must divide hidden_dim. Received: num_heads="
                f"{self.num_heads}, hidden_dim={self.hidden_dim}."
            )
        if not 0.0 <= self.dropout < 1.0:
            raise UsageError(
                f"dropout must be in [0, 1). Received: {self.dropout}."
            )
        if not self.layer_norm_epsilon > 0.0:
            raise UsageError(
                "layer_norm_epsilon must be positive. Received: "
                f"{self.layer_norm_epsilon}."
            )

    def replace(self, **overrides):
        """A copy with other values.

        Args:
            **overrides: Hyperparameters by name.

        Returns:
            A `TransformerXLConfig`.

        Raises:
            UsageError: If a name is unknown, or a value makes no sense.
        """
        known = [field.name for field in dataclasses.fields(self)]
        check_names("hyperparameter", overrides, known)
        return dataclasses.replace(self, **overrides)


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
