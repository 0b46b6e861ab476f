import math
from typing import Any
from typing import AnyStr
from typing import Self

import keras
import numpy as np
from keras import ops

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.errors import check_positive_integer
from tpt_keras.language_model.config import XL_PRESETS
from tpt_keras.language_model.config import TransformerXLConfig
from tpt_keras.layers import QueryBiases
from tpt_keras.layers import TokenAndPositionEmbedding
from tpt_keras.layers import TransformerXLAttention
from tpt_keras.layers import TransformerXLCell
from tpt_keras.layers.base_layer import Dropout
from tpt_keras.models.base_model import LogitsModel
from tpt_keras.models.stored import load_model
from tpt_keras.typing import StrPath

# Tokens of a prompt that are read at once.
_CHUNK = 64


@keras.saving.register_keras_serializable("tpt_keras")
class TransformerXL(LogitsModel):
    """A language model with a memory of earlier segments (Dai et al., 2019).

    Every cell attends to its own inputs of earlier segments, without
    gradients. Each call takes such a memory and returns the next one, unless
    the model keeps it: with a `batch_size`, it reads segments of as many
    streams one after another, as in `fit(..., shuffle=False)`. Every call
    without a memory then continues the streams, also in `evaluate` and
    `fit(validation_data=...)`. Call `reset_memory` between texts.

    All cells share their `QueryBiases` (see `TransformerXLAttention`). The
    embedding is tied to the output layer, which has a bias.

    Args:
        config: A `TransformerXLConfig`.
        batch_size: Number of streams whose memory the model keeps between
            calls. Defaults to none.
        **kwargs: Keras's base model arguments.

    Call arguments:
        token_ids: Tensor `(batch, length)`, the next segment of every stream.
        memory: The memory that `init_memory` or the last call returned.
            Defaults to the kept memory, or to none.
        training: Whether to apply dropout.

    Returns:
        float32 logits `(batch, length, vocabulary_size)` of each next token.
        With the argument `memory`, a pair of them and the next memory.

    Raises:
        UsageError: If `config` is not a `TransformerXLConfig`, or if a batch
            has another number of rows than the kept memory.

    Example:

    >>> model = TransformerXL.from_preset(
    ...     "transformer_xl_base", num_layers=2, hidden_dim=16, num_heads=2
    ... )
    >>> memory = model.init_memory(batch_size=3)
    >>> segments = keras.ops.ones((2, 3, 5), dtype="int32")
    >>> logits, memory = model(segments[0], memory)
    >>> logits, memory = model(segments[1], memory)
    >>> logits.shape
    (3, 5, 204)
    """

    config_class = TransformerXLConfig

    def __init__(
        self,
        config: TransformerXLConfig,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        if batch_size is not None:
            check_positive_integer("batch_size", batch_size)
        super().__init__(config, **kwargs)
        self.batch_size = batch_size
        self.embedding = TokenAndPositionEmbedding(
            config.vocabulary_size,
            config.hidden_dim,
            bind_embeddings=False,
            positions=config.positions,
            dropout=config.dropout,
            dtype=self.dtype_policy,
            name="embedding",
        )
        self.cells = []
        self._predict = None
        self._predicts_with: tuple[int, ...] = ()
        self.build()

    @classmethod
    def from_preset(
        cls,
        preset: str,
        batch_size: int | None = None,
        dtype: str | keras.DTypePolicy | None = None,
        **overrides: Any,
    ) -> Self:
        """Builds a new, untrained model of a named size.

        Args:
            preset: Name of a row in `XL_PRESETS`.
            batch_size: See the class.
            dtype: Dtype policy. Defaults to Keras's global policy.
            **overrides: Fields of `TransformerXLConfig` to change.

        Raises:
            UsageError: If the preset, a field or a value is invalid.
        """
        check_choice("preset", preset, XL_PRESETS)
        config = XL_PRESETS[preset].replace(**overrides)
        return cls(config, batch_size, dtype=dtype)

    def build(self, input_shape=None):
        config = self.config
        self.embedding.build()
        biases = QueryBiases(dtype=self.dtype_policy, name="biases")
        for index in range(config.num_layers):
            attention = self._cell_attention(biases)
            cell = TransformerXLCell(
                config.intermediate_dim,
                config.num_heads,
                binding=config.binding,
                binding_options=config.binding_options,
                **attention,
                key_dim=config.key_dim or None,
                dropout=config.dropout,
                layer_norm_epsilon=config.layer_norm_epsilon,
                dtype=self.dtype_policy,
                name=f"cell_{index}",
            )
            cell.build((None, None, config.hidden_dim))
            self.cells.append(cell)
        self.output_bias = self.add_weight(
            name="output_bias",
            shape=(config.vocabulary_size,),
            initializer="zeros",
        )
        self.dropout_layer = Dropout(config.dropout, dtype=self.dtype_policy)
        if self.batch_size is not None:
            self.memory = keras.tree.map_structure(
                lambda values: keras.Variable(values, trainable=False),
                self.init_memory(self.batch_size),
            )
        self.built = True

    def _cell_attention(self, biases):
        """Returns the attention of a cell, as arguments of its class."""
        config = self.config
        window = config.memory_length if config.same_length else None
        options = {"sliding_window": window, **config.mechanism_options}
        if config.attention != "transformer_xl":
            return {"attention": config.attention, "attention_options": options}
        mechanism = TransformerXLAttention(
            biases,
            dtype=self.dtype_policy,
            name="attention",
            **{"dropout": config.dropout, **options},
        )
        return {"attention": mechanism}

    def init_memory(self, batch_size):
        """Returns an empty memory of streams, a dict.

        `states` are tensors `(batch, memory_length, hidden_dim)`, one a cell.
        `length`, int32 `(batch,)`, is the number of positions in use, which are
        the last ones.
        """
        config = self.config
        shape = (batch_size, config.memory_length, config.hidden_dim)
        return {
            "states": [
                ops.zeros(shape, dtype=self.compute_dtype)
                for _ in range(config.num_layers)
            ],
            "length": ops.zeros((batch_size,), dtype="int32"),
        }

    def reset_memory(self) -> None:
        """Empties the memory that the model keeps."""
        if self.batch_size is None:
            raise UsageError(
                "This TransformerXL keeps no memory. Make it with a "
                "`batch_size`, or pass a memory with every call.",
                field="batch_size",
            )
        for variable in keras.tree.flatten(self.memory):
            variable.assign(ops.zeros(variable.shape, variable.dtype))

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.config.vocabulary_size)

    def call(self, token_ids, memory=None, training=None):
        is_kept = memory is None and self.batch_size is not None
        if is_kept:
            rows = token_ids.shape[0]
            if rows not in (None, self.batch_size):
                raise UsageError(
                    f"This TransformerXL keeps the memory of {self.batch_size} "
                    f"streams. Received: {rows} rows of token ids.",
                    field="token_ids",
                )
            memory = keras.tree.map_structure(
                ops.convert_to_tensor, self.memory
            )
        x = self.embedding(token_ids, training=training)
        inputs = []
        for index, cell in enumerate(self.cells):
            inputs.append(x)
            if memory is None:
                x = cell(x, training=training)
                continue
            x = cell(
                x,
                memory=memory["states"][index],
                memory_mask=self._memory_mask(memory["length"]),
                training=training,
            )
        x = self.dropout_layer(x, training=training)
        logits = self.embedding(x, reverse=True)
        logits = logits + ops.cast(self.output_bias, "float32")
        if memory is None:
            return logits
        memory = self._remember(memory, inputs)
        if not is_kept:
            return logits, memory
        for variable, values in zip(
            keras.tree.flatten(self.memory), keras.tree.flatten(memory)
        ):
            variable.assign(values)
        return logits

    def generate(
        self,
        prompt: AnyStr,
        length: int = 200,
        temperature: float = 1.0,
        seed: int = 0,
    ) -> AnyStr:
        """Continues a text.

        Args:
            prompt: Start of the text, a string or bytes.
            length: Number of bytes to write.
            temperature: Divisor of the logits. `0` always takes the likeliest
                byte.
            seed: Seed of the choices.

        Returns:
            The continuation without the prompt, of the prompt's type. Bytes
            that are no UTF-8 are replaced in a string.

        Raises:
            UsageError: If the model has no memory, the prompt is empty or has
                an unknown character, or another value is invalid.

        Example:

        ```python
        model = load_language_model("models/text")
        print(model.generate("What is 1 + 1?", length=20, temperature=0.5))
        ```
        """
        if not self.config.memory_length:
            raise UsageError(
                "A model without a memory continues no text. Train one with a "
                "`memory_length`.",
                field="memory_length",
            )
        check_positive_integer("length", length)
        if not 0.0 <= temperature < math.inf:
            raise UsageError(
                "`temperature` must be finite and not negative. Received: "
                f"{temperature}.",
                field="temperature",
            )
        # LoRA and quantization exchange a model's variables.
        variables = tuple(map(id, self.variables))
        if self._predict is None or self._predicts_with != variables:
            # A method, because Keras would save the model as its own part.
            self._predict = _Reader(self).predict_on_batch
            self._predicts_with = variables
        generator = np.random.default_rng(seed)
        unread, written = self._token_ids(prompt), []
        memory = keras.tree.map_structure(
            ops.convert_to_numpy, self.init_memory(batch_size=1)
        )
        for _ in range(length):
            logits, memory = self._read_on(unread, memory)
            logits = logits[: len(self.config.vocabulary)]
            written.append(_sample(logits, temperature, generator))
            unread = written[-1:]
        text = bytes(self.config.vocabulary[token] for token in written)
        return (
            text.decode(errors="replace") if isinstance(prompt, str) else text
        )

    def _token_ids(self, prompt):
        text = prompt.encode() if isinstance(prompt, str) else bytes(prompt)
        vocabulary = self.config.vocabulary
        unknown = bytes(sorted(set(text) - set(vocabulary)))
        if unknown or not text:
            found = f"has unknown bytes, {unknown!r}" if text else "is empty"
            raise UsageError(
                f"The `prompt` {found}. It must have bytes of the text that "
                "the model has learned.",
                field="prompt",
            )
        return list(map(vocabulary.index, text))

    def _read_on(self, tokens, memory):
        """Reads tokens and returns the next logits and the new memory."""
        while tokens:
            # Two lengths, so that two programs are compiled.
            length = _CHUNK if len(tokens) >= _CHUNK else 1
            logits, memory = self._predict(
                {"token_ids": np.array([tokens[:length]]), "memory": memory}
            )
            tokens = tokens[length:]
        return logits[0, -1], memory

    def _memory_mask(self, length):
        positions = ops.arange(self.config.memory_length, dtype="int32")
        first = self.config.memory_length - length
        return positions[None, :] >= first[:, None]

    def _remember(self, memory, inputs):
        """Adds the cells' inputs of a segment to the memory."""
        length = ops.shape(inputs[0])[1]
        states = [
            ops.stop_gradient(
                ops.concatenate([past, ops.cast(x, past.dtype)], axis=1)
            )[:, length:]
            for past, x in zip(memory["states"], inputs)
        ]
        length = ops.minimum(
            memory["length"] + length, self.config.memory_length
        )
        return {"states": states, "length": length}

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "batch_size": self.batch_size}


class _Reader(keras.Model):
    """A model as a function of one argument, compiled by `predict_on_batch`."""

    def __init__(self, model):
        super().__init__(name="reader", dtype=model.dtype_policy)
        self.autocast = False
        self.model = model

    def call(self, inputs):
        return self.model(inputs["token_ids"], inputs["memory"])


def _sample(logits, temperature, generator):
    if not temperature:
        return int(np.argmax(logits))
    logits = logits.astype("float64")
    weights = np.exp((logits - logits.max()) / temperature)
    return int(generator.choice(len(logits), p=weights / weights.sum()))


def load_language_model(model: StrPath, best: bool = False) -> TransformerXL:
    """Loads a trained `TransformerXL` from its folder, without a memory.

    `best` loads the best model in validation instead of the last one.

    Raises:
        UsageError: If the folder holds no such model, or a damaged one.
    """
    return load_model(model, best, (TransformerXL,))
