import collections.abc
import dataclasses
import numbers

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names
from tpt_keras.layers.binding import BINDINGS
from tpt_keras.layers.scores import score_class
from tpt_keras.layers.token_and_position_embedding import POSITIONS
from tpt_keras.tokenizers.vocabulary import MATHEMATICS_VOCABULARY
from tpt_keras.tokenizers.vocabulary import MAX_ANSWER_LENGTH
from tpt_keras.tokenizers.vocabulary import MAX_QUESTION_LENGTH

INITIALIZATIONS = ("paper", "released")

# What is taken for a value of a type; a bool counts as a number in Python.
_TAKEN = {
    bool: bool,
    int: numbers.Integral,
    float: numbers.Real,
    str: str,
    tuple: collections.abc.Iterable,
}


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """Everything that makes one `Transformer` what it is.

    Args:
        hidden_dim: Size of the hidden states (the paper's d_z).
        intermediate_dim: Size of the feed-forward's hidden layer (d_f).
        num_heads: Number of attention heads (H); divides `hidden_dim`.
        num_layers: Number of encoder cells and of decoder cells (L).
        binding: How a filler is bound to its role: `"hadamard"` (the
            TP-Transformer), `"tensor"` or `"none"` (a plain Transformer).
        bind_embeddings: Whether the embedding is bound to a role too.
        attention: How queries meet keys: a name in `tpt_keras.layers.SCORES`
            (`"dot_product"`), or the name under which an `AttentionScore` is
            registered with Keras.
        positions: What the embedding adds for a symbol's position:
            `"sinusoidal"` or `"none"`.
        dropout: Dropout rate, everywhere.
        layer_norm_epsilon: Epsilon of every layer norm.
        initialization: `"paper"`: embeddings normal, everything else Xavier
            uniform, biases zero. `"released"`: what the authors' code does,
            whose TP-Attention keeps PyTorch's default, uniform within
            `1 / sqrt(fan_in)`, biases included.
        vocabulary: The symbols, each at its token id; see
            `CharacterTokenizer`.
        vocabulary_size: Rows of the embedding. Defaults to the number of
            symbols; a larger size leaves rows unused.
        max_question_length: Longest question taken, in characters.
        max_answer_length: Longest answer given, in characters.

    Raises:
        UsageError: If a value is of a wrong type or makes no sense.
    """

    hidden_dim: int = 512
    intermediate_dim: int = 2048
    num_heads: int = 8
    num_layers: int = 6
    binding: str = "hadamard"
    bind_embeddings: bool = True
    attention: str = "dot_product"
    positions: str = "sinusoidal"
    dropout: float = 0.0
    layer_norm_epsilon: float = 1e-5
    initialization: str = "paper"
    vocabulary: tuple = MATHEMATICS_VOCABULARY
    vocabulary_size: int = 0
    max_question_length: int = MAX_QUESTION_LENGTH
    max_answer_length: int = MAX_ANSWER_LENGTH

    def __post_init__(self):
        self._set_types()
        if not self.vocabulary_size:
            object.__setattr__(self, "vocabulary_size", len(self.vocabulary))
        check_names("binding", [self.binding], BINDINGS)
        check_names("positions", [self.positions], POSITIONS)
        check_names("initialization", [self.initialization], INITIALIZATIONS)
        try:
            score_class(self.attention)
        except ValueError as error:
            raise UsageError(str(error)) from None
        for name in (
            "hidden_dim",
            "intermediate_dim",
            "num_heads",
            "num_layers",
            "max_question_length",
            "max_answer_length",
        ):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} must be positive.")
        if self.hidden_dim % self.num_heads:
            raise UsageError(
                f"num_heads must divide hidden_dim. Received: num_heads="
                f"{self.num_heads}, hidden_dim={self.hidden_dim}."
            )
        if not 0.0 <= self.dropout < 1.0:
            raise UsageError(
                f"dropout must be in [0, 1). Received: {self.dropout}."
            )
        if self.vocabulary_size < len(self.vocabulary):
            raise UsageError(
                f"vocabulary_size must be at least the vocabulary's "
                f"{len(self.vocabulary)} symbols. Received: "
                f"{self.vocabulary_size}."
            )

    def _set_types(self):
        """Makes the values of the fields' own types, or refuses them."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            is_misplaced_bool = (
                isinstance(value, bool) and field.type is not bool
            )
            if is_misplaced_bool or not isinstance(value, _TAKEN[field.type]):
                raise UsageError(
                    f"{field.name} takes a value of type "
                    f"{field.type.__name__}. Received: {value!r} (of type "
                    f"{type(value).__name__})."
                )
            object.__setattr__(self, field.name, field.type(value))

    def replace(self, **overrides):
        """A copy with other values.

        Args:
            **overrides: Hyperparameters by name.

        Returns:
            A `TransformerConfig`.

        Raises:
            UsageError: If a name is unknown, or a value makes no sense.
        """
        known = [field.name for field in dataclasses.fields(self)]
        check_names("hyperparameter", overrides, known)
        if "vocabulary" in overrides and "vocabulary_size" not in overrides:
            overrides["vocabulary_size"] = 0
        return dataclasses.replace(self, **overrides)

    def parse_overrides(self, text):
        """Hyperparameters from `"name=value,name=value"`, typed as here.

        Args:
            text: The overrides; may be empty.

        Returns:
            Dict of name to value.

        Raises:
            UsageError: If a name is unknown or a value is not of its type.
        """
        overrides = {}
        for item in filter(None, text.split(",")):
            name, _, value = item.partition("=")
            name, value = name.strip(), value.strip()
            known = [
                field.name
                for field in dataclasses.fields(self)
                if field.name != "vocabulary"
            ]
            check_names("hyperparameter", [name], known)
            kind = type(getattr(self, name))
            try:
                overrides[name] = _parse(value, kind)
            except ValueError:
                raise UsageError(
                    f"Hyperparameter {name} takes a value of type "
                    f"{kind.__name__}. Received: {value!r}."
                ) from None
        return overrides


def _parse(text, kind):
    """`text` as a value of `kind`; raises ValueError if it is none."""
    if kind is bool:
        return ("false", "true").index(text.lower()) == 1
    return kind(text)
