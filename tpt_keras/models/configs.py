"""Configurations of models, one dataclass for each kind."""

import dataclasses
import json
import math
import typing

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.errors import check_choices
from tpt_keras.errors import check_positive_integer
from tpt_keras.layers import POSITIONS
from tpt_keras.layers import TPMultiHeadAttention
from tpt_keras.settings import check_settings
from tpt_keras.tokenizers.vocabulary import MATHEMATICS_VOCABULARY
from tpt_keras.tokenizers.vocabulary import MAX_ANSWER_LENGTH
from tpt_keras.tokenizers.vocabulary import MAX_QUESTION_LENGTH

INITIALIZATIONS = ("paper", "released")
LSTM_ATTENTIONS = ("none", "additive")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Base class of the configurations.

    Args:
        dropout: Dropout rate.
        vocabulary: The symbols, each at its token id.
        vocabulary_size: Number of token ids. Defaults to the number of
            symbols; a larger size leaves rows unused.

    Raises:
        UsageError: If a value is invalid.
    """

    # The name of the subclass in a stored configuration.
    KIND: typing.ClassVar = None
    # Every subclass with a name, by its name.
    KINDS: typing.ClassVar = {}
    # Fields that must be positive.
    SIZES: typing.ClassVar = ("vocabulary_size",)

    dropout: float = 0.0
    vocabulary: tuple = ()
    vocabulary_size: int = 0

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if cls.KIND is not None:
            cls.KINDS[cls.KIND] = cls

    @property
    def cell_names(self):
        """Names of the layers that can be rematerialized, if any."""
        return ()

    def __post_init__(self):
        check_settings(self)
        if not self.vocabulary_size:
            object.__setattr__(self, "vocabulary_size", len(self.vocabulary))
        for name in self.SIZES:
            check_positive_integer(name, getattr(self, name))
        if not 0.0 <= self.dropout < 1.0:
            raise UsageError(
                f"`dropout` must be in [0, 1). Received: {self.dropout}.",
                field="dropout",
            )
        if self.vocabulary_size < len(self.vocabulary):
            raise UsageError(
                "`vocabulary_size` must be at least the vocabulary's "
                f"{len(self.vocabulary)} symbols. Received: "
                f"{self.vocabulary_size}.",
                field="vocabulary_size",
            )

    def replace(self, **overrides):
        """Returns a copy with other values.

        Args:
            **overrides: Fields by name.

        Returns:
            A configuration of the same class.

        Raises:
            UsageError: If a name is unknown, or a value is invalid.
        """
        known = [field.name for field in dataclasses.fields(self)]
        check_choices("hyperparameter", overrides, known)
        if "vocabulary" in overrides and "vocabulary_size" not in overrides:
            overrides["vocabulary_size"] = 0
        return dataclasses.replace(self, **overrides)

    def parse_overrides(self, text):
        """Parses fields from `"name=value,name=value"`.

        An option has a dotted name:
        `"attention=relative,attention_options.max_distance=8"`.

        Args:
            text: The fields and their values; may be empty.

        Returns:
            Dict of names to values, of the types of the fields.

        Raises:
            UsageError: If a name is unknown, or a value is of a wrong type.
        """
        overrides = {}
        for item in filter(None, text.split(",")):
            name, _, value = map(str.strip, item.partition("="))
            name, _, option = name.partition(".")
            known = {field.name for field in dataclasses.fields(self)}
            check_choice("hyperparameter", name, known - {"vocabulary"})
            kind = type(getattr(self, name))
            if (kind is dict) != bool(option):
                raise UsageError(
                    f"`{name}` has "
                    + ("options" if kind is dict else "no options")
                    + f". Received: {item.strip()!r}. An option is set as in "
                    "attention_options.max_distance=8.",
                    field=name,
                )
            if kind is dict:
                options = overrides.get(name, getattr(self, name))
                overrides[name] = {**options, option: _parse_option(value)}
                continue
            try:
                overrides[name] = _parse(value, kind)
            except ValueError:
                raise UsageError(
                    f"`{name}` takes a value of type {kind.__name__}. "
                    f"Received: {value!r}.",
                    field=name,
                ) from None
        return overrides


@dataclasses.dataclass(frozen=True)
class SequenceToSequenceConfig(ModelConfig):
    """Base class of the configurations of models that answer questions.

    Args:
        vocabulary: The symbols, each at its token id; see
            `CharacterTokenizer`.
        max_question_length: Most characters of a question.
        max_answer_length: Most characters of an answer.
        **kwargs: See `ModelConfig`.

    Raises:
        UsageError: If a value is invalid.
    """

    SIZES: typing.ClassVar = (
        "max_question_length",
        "max_answer_length",
        *ModelConfig.SIZES,
    )

    vocabulary: tuple = MATHEMATICS_VOCABULARY
    max_question_length: int = MAX_QUESTION_LENGTH
    max_answer_length: int = MAX_ANSWER_LENGTH


@dataclasses.dataclass(frozen=True)
class TransformerConfig(SequenceToSequenceConfig):
    """Configuration of a `Transformer`.

    Args:
        hidden_dim: Size of the hidden states (the paper's d_z).
        intermediate_dim: Size of the feed-forward's hidden layer (d_f).
        num_heads: Number of attention heads (H); divides `hidden_dim`.
        num_layers: Number of encoder cells and of decoder cells (L).
        binding: How a filler is bound to its role: a name in
            `tpt_keras.layers.BINDINGS`, `"hadamard"` (the TP-Transformer),
            `"tensor"`, `"discrete"` or `"none"` (a plain Transformer).
        binding_options: Dict of the binding's options, for instance
            `{"rank": 16}`.
        bind_embeddings: Whether the embedding is bound to a role too.
        attention: How queries meet keys: a name in
            `tpt_keras.layers.MECHANISMS` (`"dot_product"`), or the name under
            which an `AttentionMechanism` is registered with Keras.
        attention_options: Dict of the mechanism's options, for instance
            `{"max_distance": 8}`.
        positions: How the embedding encodes positions: `"sinusoidal"` or
            `"none"`.
        layer_norm_epsilon: Epsilon of every layer norm.
        initialization: `"paper"`: embeddings normal, everything else Xavier
            uniform, biases zero. `"released"`: that of the authors' code, whose
            TP-Attention keeps PyTorch's default, uniform within `1 /
            sqrt(fan_in)`, biases included.
        **kwargs: See `SequenceToSequenceConfig`.

    Raises:
        UsageError: If a value is invalid.
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
        """Returns this variant at another size.

        Args:
            width: Size of a head.
            more: Size of the filter besides its share.
            num_layers: See the field.
            num_heads: See the field.
            filter_ratio: Size of the filter as a share of the hidden size.
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
        check_choice("positions", self.positions, POSITIONS)
        check_choice("initialization", self.initialization, INITIALIZATIONS)
        mechanism = check_attention(self, binding_options=self.binding_options)
        # A question has a start and an end, a decoded answer a start.
        longest = max(self.max_question_length + 2, self.max_answer_length + 1)
        if mechanism.max_length is not None and mechanism.max_length < longest:
            raise UsageError(
                f"A `max_question_length` of {self.max_question_length} and a "
                f"`max_answer_length` of {self.max_answer_length} need an "
                f"attention_options.max_length of at least {longest}. "
                f"Received: {mechanism.max_length}. Increase it, or decrease "
                "them.",
                field="attention_options",
            )


@dataclasses.dataclass(frozen=True)
class LSTMConfig(SequenceToSequenceConfig):
    """Configuration of a `SimpleLSTM` or an `AttentionalLSTM`.

    Args:
        hidden_dim: Size of the hidden state of the LSTM that answers.
        thinking_steps: Number of blank inputs between the question and the
            answer.
        attention: How the answer reads the question: `"none"` (`SimpleLSTM`,
            whose one LSTM reads and answers) or `"additive"`
            (`AttentionalLSTM`).
        encoder_dim: With attention, size of the hidden state of the encoder in
            each direction.
        attention_dim: With attention, size of the vectors read from the
            question.
        **kwargs: See `SequenceToSequenceConfig`.

    Raises:
        UsageError: If a value is invalid.
    """

    KIND: typing.ClassVar = "lstm"
    SIZES: typing.ClassVar = (
        "hidden_dim",
        "encoder_dim",
        "attention_dim",
        *SequenceToSequenceConfig.SIZES,
    )

    hidden_dim: int = 2048
    thinking_steps: int = 16
    attention: str = "none"
    encoder_dim: int = 512
    attention_dim: int = 512

    def __post_init__(self):
        super().__post_init__()
        check_choice("attention", self.attention, LSTM_ATTENTIONS)
        if self.thinking_steps < 0:
            raise UsageError(
                "`thinking_steps` must not be negative. Received: "
                f"{self.thinking_steps}.",
                field="thinking_steps",
            )

    def resized(self, width, more, **of_cells):
        """Returns this variant at another size, in proportion.

        Args:
            width: Size of the hidden state.
            more: Size of the hidden state besides, for a finer choice.
            **of_cells: Fields that only a Transformer has.

        Returns:
            An `LSTMConfig`.
        """
        share = width / self.hidden_dim
        return self.replace(
            hidden_dim=width + more,
            encoder_dim=max(1, round(share * self.encoder_dim)),
            attention_dim=max(1, round(share * self.attention_dim)),
        )


def check_attention(config, key_dim=None, **kwargs):
    """Checks the attention of a configuration.

    Args:
        config: A `ModelConfig` with `hidden_dim`, `num_heads`, `binding`,
            `attention` and `attention_options`.
        key_dim: Size of a head. Defaults to its share of `hidden_dim`.
        **kwargs: Other arguments of the `TPMultiHeadAttention`.

    Returns:
        Its `AttentionMechanism`, not built.

    Raises:
        UsageError: If a value is invalid.
    """
    if not key_dim and config.hidden_dim % config.num_heads:
        raise UsageError(
            "`num_heads` must divide `hidden_dim`. Received: num_heads="
            f"{config.num_heads}, hidden_dim={config.hidden_dim}.",
            field="num_heads",
        )
    layer = TPMultiHeadAttention(
        config.num_heads,
        key_dim or config.hidden_dim // config.num_heads,
        binding=config.binding,
        attention=config.attention,
        attention_options=config.attention_options,
        # The default initializers draw seeds, which would change those of the
        # model.
        kernel_initializer="zeros",
        **kwargs,
    )
    mechanism = layer.attention
    if mechanism.output_dim not in (None, config.hidden_dim):
        raise UsageError(
            "attention_options.output_dim must be `hidden_dim`, "
            f"{config.hidden_dim}. Received: {mechanism.output_dim}.",
            field="attention_options",
        )
    return mechanism


def to_stored(config):
    """Converts a configuration to a dict for JSON.

    Args:
        config: A `ModelConfig`, such as a `TransformerConfig`.

    Returns:
        Dict of its fields and its `kind`.

    Example:

    >>> stored = to_stored(LSTMConfig())
    >>> stored["kind"], stored["hidden_dim"]
    ('lstm', 2048)
    >>> from_stored(stored) == LSTMConfig()
    True
    """
    return {"kind": config.KIND, **dataclasses.asdict(config)}


def from_stored(stored):
    """Converts a dict of `to_stored` back, possibly after a trip through JSON.

    Args:
        stored: The dict.

    Returns:
        A `ModelConfig`, such as a `TransformerConfig`.

    Raises:
        UsageError: If the kind is unknown, or a value is invalid.
    """
    fields = dict(stored)
    kind = fields.pop("kind", None)
    check_choice("kind of model", kind, ModelConfig.KINDS)
    return ModelConfig.KINDS[kind](**fields)


def _parse(text, kind):
    if kind is bool:
        return ("false", "true").index(text.lower()) == 1
    return kind(text)


def _parse_option(text):
    """Parses a number or a bool; anything else is a string."""
    try:
        return json.loads(text.lower())
    except ValueError:
        return text
