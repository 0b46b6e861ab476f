"""Configurations of models, one dataclass for each kind."""

import dataclasses
import typing
from typing import Any
from typing import Self

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.layers import ATTENTION_POSITIONS
from tpt_keras.layers import POSITIONS
from tpt_keras.layers import make_binding
from tpt_keras.layers import make_mechanism
from tpt_keras.layers.mechanisms import AttentionMechanism
from tpt_keras.settings import check_settings
from tpt_keras.settings import parse_items
from tpt_keras.settings import setting
from tpt_keras.tokenizers.character_tokenizer import ANSWER_ORDERS
from tpt_keras.tokenizers.character_tokenizer import MATHEMATICS_VOCABULARY
from tpt_keras.tokenizers.character_tokenizer import MAX_ANSWER_LENGTH
from tpt_keras.tokenizers.character_tokenizer import MAX_QUESTION_LENGTH
from tpt_keras.tokenizers.character_tokenizer import VOCABULARIES
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer
from tpt_keras.typing import Items


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Base class of the configurations. A wrong value is a `UsageError`.

    Args:
        dropout: Dropout rate.
        vocabulary: The symbols, each at its token id.
        vocabulary_size: Number of token ids. Defaults to the number of
            symbols; a larger size leaves rows unused.
    """

    # The name of the subclass in a stored configuration.
    KIND: typing.ClassVar[str | None] = None
    KINDS: typing.ClassVar[dict[str, type]] = {}
    VOCABULARIES: typing.ClassVar[dict[str, tuple]] = {}

    dropout: float = setting(0.0, minimum=0, below=1)
    vocabulary: Items = setting(())
    vocabulary_size: int = setting(0)

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if cls.KIND is not None:
            cls.KINDS[cls.KIND] = cls

    def __post_init__(self):
        if isinstance(self.vocabulary, str):
            check_choice("vocabulary", self.vocabulary, self.VOCABULARIES)
            symbols = self.VOCABULARIES[self.vocabulary]
            object.__setattr__(self, "vocabulary", symbols)
        check_settings(self)
        num_symbols = len(self.vocabulary)
        if not self.vocabulary_size:
            object.__setattr__(self, "vocabulary_size", num_symbols)
        if self.vocabulary_size < max(1, num_symbols):
            raise UsageError(
                "`vocabulary_size` must be at least 1 and the vocabulary's "
                f"{num_symbols} symbols. Received: {self.vocabulary_size}.",
                field="vocabulary_size",
            )

    def replace(self, **overrides: Any) -> Self:
        """Returns a copy with other values.

        Args:
            **overrides: Fields by name.

        Raises:
            UsageError: If a name is unknown, or a value is invalid.
        """
        fields = [field.name for field in dataclasses.fields(self)]
        for name in overrides:
            check_choice("hyperparameter", name, fields)
        if "vocabulary" in overrides:
            overrides = {"vocabulary_size": 0, **overrides}
        return dataclasses.replace(self, **overrides)

    def parse_overrides(self, text: str) -> dict[str, Any]:
        """Parses fields from `"name=value,name=value"` to a dict for `replace`.

        An option has a dotted name:
        `"attention=relative,attention_options.max_distance=8"`.

        Raises:
            UsageError: If a name is unknown, or a value has another type.
        """
        kinds = {
            # A text names a vocabulary.
            field.name: str if field.type is tuple else field.type
            for field in dataclasses.fields(self)
        }
        items = filter(None, text.split(","))
        overrides = parse_items("hparams", items, kinds)
        for name, value in overrides.items():
            if isinstance(value, dict):
                overrides[name] = getattr(self, name) | value
        return overrides


@dataclasses.dataclass(frozen=True)
class AttentionConfig(ModelConfig):
    """Base class of the configurations of models with TP-Attention.

    Args:
        hidden_dim: Size of the hidden states (the paper's d_z).
        intermediate_dim: Size of the feed-forward's hidden layer (d_f).
        num_heads: Number of attention heads (H); divides `hidden_dim`.
        num_layers: Number of cells of a kind (L).
        binding: How a filler is bound to its role: `"hadamard"` (the
            TP-Transformer), `"none"` (a plain Transformer), or another name in
            `tpt_keras.layers.BINDINGS`.
        binding_options: Dict of its options, such as `{"rank": 16}`.
        attention: How queries meet keys: a name in
            `tpt_keras.layers.MECHANISMS` (`"dot_product"`), or the name under
            which an `AttentionMechanism` is registered with Keras.
        attention_options: Dict of its options, such as `{"max_distance": 8}`.
        positions: How positions are encoded: `"sinusoidal"` (added to the
            embedding), `"rotary"` (by the self-attention, see
            `DotProductAttention`) or `"none"`.
        layer_norm_epsilon: Epsilon of every layer norm.

    See `ModelConfig` for the other arguments.
    """

    hidden_dim: int = setting(512, minimum=1)
    intermediate_dim: int = setting(2048, minimum=1)
    num_heads: int = setting(8, minimum=1)
    num_layers: int = setting(6, minimum=1)
    binding: str = setting("hadamard")
    # A dict cannot be hashed.
    binding_options: dict = dataclasses.field(default_factory=dict, hash=False)
    attention: str = setting("dot_product")
    attention_options: dict = dataclasses.field(
        default_factory=dict, hash=False
    )
    positions: str = setting("sinusoidal", choices=POSITIONS)
    layer_norm_epsilon: float = setting(1e-5, above=0)

    @property
    def mechanism_options(self) -> dict[str, Any]:
        """The mechanism's options, with the positions that it encodes."""
        if self.positions not in ATTENTION_POSITIONS:
            return self.attention_options
        return {**self.attention_options, "positions": self.positions}

    def check_attention(self, key_dim: int | None = None) -> AttentionMechanism:
        """Checks what an attention would refuse; returns its mechanism."""
        if not key_dim and self.hidden_dim % self.num_heads:
            raise UsageError(
                "`num_heads` must divide `hidden_dim`. Received: num_heads="
                f"{self.num_heads}, hidden_dim={self.hidden_dim}.",
                field="num_heads",
            )
        mechanism = make_mechanism(self.attention, self.attention_options)
        binding = make_binding(self.binding, self.binding_options)
        mechanism.check_layer(self.num_heads, binding)
        if self.positions in ATTENTION_POSITIONS:
            if not mechanism.takes_positions:
                raise UsageError(
                    f"attention={self.attention} does not take positions="
                    f"{self.positions}. Use positions=none, or "
                    "attention=dot_product.",
                    field="positions",
                )
            # They may not fit the other options.
            make_mechanism(self.attention, self.mechanism_options)
        if mechanism.output_dim not in (None, self.hidden_dim):
            raise UsageError(
                "attention_options.output_dim must be `hidden_dim`, "
                f"{self.hidden_dim}. Received: {mechanism.output_dim}.",
                field="attention_options",
            )
        return mechanism


@dataclasses.dataclass(frozen=True)
class SequenceToSequenceConfig(ModelConfig):
    """Base class of the configurations of models that answer questions.

    Args:
        vocabulary: The symbols, each at its token id; see
            `CharacterTokenizer`. Or the name of a vocabulary: `"mathematics"`,
            the paper's characters, or `"mathematics_words"`, with the words of
            the Mathematics Dataset's questions as tokens.
        max_question_length: Most characters of a question, also of one with
            such words. If the vocabulary has `<words>`: most words.
        max_answer_length: Most characters, or words, of an answer.
        answer_order: Order in which a model writes the digits of an answer:
            `"as_written"`, `"units_first"` or `"minutes_first"`, see
            `CharacterTokenizer`.

    See `ModelConfig` for the other arguments.
    """

    VOCABULARIES: typing.ClassVar = VOCABULARIES

    vocabulary: Items = setting(MATHEMATICS_VOCABULARY)
    max_question_length: int = setting(MAX_QUESTION_LENGTH, minimum=1)
    max_answer_length: int = setting(MAX_ANSWER_LENGTH, minimum=1)
    answer_order: str = setting("as_written", choices=ANSWER_ORDERS)

    def make_tokenizer(self) -> CharacterTokenizer:
        """Makes the tokenizer of the questions and answers."""
        return CharacterTokenizer(self.vocabulary, self.answer_order)


@dataclasses.dataclass(frozen=True)
class TransformerConfig(SequenceToSequenceConfig, AttentionConfig):
    """Configuration of a `Transformer`.

    Args:
        bind_embeddings: Whether the embedding is bound to a role too.
        initialization: `"paper"`: embeddings are normal, biases zero and all
            other weights Xavier uniform. `"released"`: as in the authors' code,
            TP-Attention and all biases keep PyTorch's default instead, uniform
            within `1 / sqrt(fan_in)`.
        digit_places: Whether a digit's embedding tells its place in its number,
            see `DigitPlaceEmbedding`. In answers this needs an `answer_order`
            of units first.
        num_decoder_layers: Number of decoder cells, which take most of the
            time of an answer. Defaults to `num_layers`.

    See `AttentionConfig` and `SequenceToSequenceConfig` for the other
    arguments.
    """

    KIND: typing.ClassVar = "transformer"

    bind_embeddings: bool = setting(True)
    initialization: str = setting("paper", choices=("paper", "released"))
    digit_places: bool = setting(False)
    num_decoder_layers: int = setting(0, minimum=0)

    def __post_init__(self):
        super().__post_init__()
        mechanism = self.check_attention()
        # A question has a start and an end, a decoded answer a start.
        longest = max(self.max_question_length + 2, self.max_answer_length + 1)
        if mechanism.max_length is not None and mechanism.max_length < longest:
            raise UsageError(
                "`max_question_length` and `max_answer_length` need an "
                f"attention_options.max_length of at least {longest}. "
                f"Received: {mechanism.max_length}.",
                field="attention_options",
            )


@dataclasses.dataclass(frozen=True)
class LSTMConfig(SequenceToSequenceConfig):
    """Configuration of a `SimpleLSTM` or an `AttentionalLSTM`.

    Args:
        hidden_dim: Size of the hidden state of the LSTM that answers.
        thinking_steps: Number of blank inputs between the question and the
            answer.
        attention: How the answer reads the question: `"none"` (`SimpleLSTM`)
            or `"additive"` (`AttentionalLSTM`).
        encoder_dim: With attention, size of the hidden state of the encoder in
            each direction.
        attention_dim: With attention, size of the vectors read from the
            question.

    See `SequenceToSequenceConfig` for the other arguments.
    """

    KIND: typing.ClassVar = "lstm"

    hidden_dim: int = setting(2048, minimum=1)
    thinking_steps: int = setting(16, minimum=0)
    attention: str = setting("none", choices=("none", "additive"))
    encoder_dim: int = setting(512, minimum=1)
    attention_dim: int = setting(512, minimum=1)


def to_stored(config: ModelConfig) -> dict[str, Any]:
    """Converts a configuration to a dict for JSON."""
    return {"kind": config.KIND, **dataclasses.asdict(config)}


def from_stored(stored: dict[str, Any]) -> ModelConfig:
    """Converts a dict of `to_stored` back, after a trip through JSON too."""
    fields = dict(stored)
    kind = fields.pop("kind", None)
    check_choice("kind of model", kind, ModelConfig.KINDS)
    return ModelConfig.KINDS[kind](**fields)
