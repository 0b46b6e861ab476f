import dataclasses
import math
import typing

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names
from tpt_keras.layers import POSITIONS
from tpt_keras.models.attention_choices import check_attention
from tpt_keras.models.sequence_to_sequence_config import (
    SequenceToSequenceConfig,
)

INITIALIZATIONS = ("paper", "released")


@dataclasses.dataclass(frozen=True)
class TransformerConfig(SequenceToSequenceConfig):
    """Everything that makes one `Transformer` what it is.

    Args:
        hidden_dim: Size of the hidden states (the paper's d_z).
        intermediate_dim: Size of the feed-forward's hidden layer (d_f).
        num_heads: Number of attention heads (H); divides `hidden_dim`.
        num_layers: Number of encoder cells and of decoder cells (L).
        binding: How a filler is bound to its role: a name in
            `tpt_keras.layers.BINDINGS`, `"hadamard"` (the TP-Transformer),
            `"tensor"`, `"discrete"` or `"none"` (a plain Transformer).
        binding_options: What that binding takes, a dict: for instance
            `{"rank": 16}`.
        bind_embeddings: Whether the embedding is bound to a role too.
        attention: How queries meet keys: a name in
            `tpt_keras.layers.MECHANISMS` (`"dot_product"`), or the name under
            which an `AttentionMechanism` is registered with Keras.
        attention_options: What that mechanism takes, a dict: for instance
            `{"max_distance": 8}`.
        positions: What the embedding adds for a symbol's position:
            `"sinusoidal"` or `"none"`.
        layer_norm_epsilon: Epsilon of every layer norm.
        initialization: `"paper"`: embeddings normal, everything else Xavier
            uniform, biases zero. `"released"`: what the authors' code does,
            whose TP-Attention keeps PyTorch's default, uniform within
            `1 / sqrt(fan_in)`, biases included.
        **kwargs: See `SequenceToSequenceConfig`.

    Raises:
        UsageError: If a value is of a wrong type or makes no sense.
    """

    KIND: typing.ClassVar = "transformer"
    SIZES: typing.ClassVar = (
        "hidden_dim",
        "intermediate_dim",
        "num_heads",
        "num_layers",
        *SequenceToSequenceConfig.SIZES,
    )

    hidden_dim: int = 512
    intermediate_dim: int = 2048
    num_heads: int = 8
    num_layers: int = 6
    binding: str = "hadamard"
    # A dict cannot be hashed.
    binding_options: dict = dataclasses.field(default_factory=dict, hash=False)
    bind_embeddings: bool = True
    attention: str = "dot_product"
    attention_options: dict = dataclasses.field(
        default_factory=dict, hash=False
    )
    positions: str = "sinusoidal"
    layer_norm_epsilon: float = 1e-5
    initialization: str = "paper"

    @property
    def cell_names(self):
        return tuple(
            f"{kind}_cell_{index}"
            for kind in ("encoder", "decoder")
            for index in range(self.num_layers)
        )

    def resized(self, width, more, num_layers, num_heads, filter_ratio=None):
        """This variant at another size.

        Args:
            width: Size of a head.
            more: What the filter has besides its share.
            num_layers: See the field.
            num_heads: See the field.
            filter_ratio: The filter's size as a share of the hidden size.
                Defaults to the variant's own.

        Returns:
            A `TransformerConfig`.
        """
        if filter_ratio is None:
            filter_ratio = self.intermediate_dim / self.hidden_dim
        hidden_dim = width * num_heads
        return self.replace(
            hidden_dim=hidden_dim,
            intermediate_dim=math.ceil(filter_ratio * hidden_dim) + more,
            num_heads=num_heads,
            num_layers=num_layers,
        )

    def __post_init__(self):
        super().__post_init__()
        check_names("positions", [self.positions], POSITIONS)
        check_names("initialization", [self.initialization], INITIALIZATIONS)
        mechanism = check_attention(self, binding_options=self.binding_options)
        # A question has a start and an end, what is decoded a start.
        longest = max(self.max_question_length + 2, self.max_answer_length + 1)
        if mechanism.max_length is not None and mechanism.max_length < longest:
            raise UsageError(
                f"A max_question_length of {self.max_question_length} and a "
                f"max_answer_length of {self.max_answer_length} need an "
                f"attention_options.max_length of at least {longest}. "
                f"Received: {mechanism.max_length}. Raise it, or lower them."
            )
