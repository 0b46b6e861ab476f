import dataclasses

import keras
from keras import ops

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names
from tpt_keras.errors import check_positive_integer
from tpt_keras.language_model.config import XL_PRESETS
from tpt_keras.language_model.config import TransformerXLConfig
from tpt_keras.layers import TokenAndPositionEmbedding
from tpt_keras.layers import TransformerXLCell
from tpt_keras.layers import dtype_config
from tpt_keras.models.load_model import load_model


@keras.saving.register_keras_serializable("tpt_keras")
class TransformerXL(keras.Model):
    """A language model that reads segment after segment (Dai et al., 2019).

    Every cell sees its own inputs of the segments before, without gradients.
    A memory is given with every call and returned, or with a `batch_size` the
    model keeps it: then segments of as many streams are read one after the
    other, as by `fit(..., shuffle=False)`. Every call without a memory reads on
    in it, those of `evaluate` and of `fit(validation_data=...)` too: between
    texts, call `reset_memory`.

    The biases of the queries are all layers' (see `TransformerXLAttention`),
    and the embedding is tied to the output layer, which has a bias.

    Args:
        config: A `TransformerXLConfig`.
        batch_size: Number of streams of which the model keeps the memory
            between calls. Defaults to none.
        **kwargs: Keras's base model arguments.

    Call arguments:
        token_ids: Tensor `(batch, length)`, the next segment of every stream.
        memory: What `init_memory` or the last call gave. Defaults to what the
            model keeps, or to none.
        training: Whether to apply dropout.

    Returns:
        float32 logits `(batch, length, vocabulary_size)` of the token that
        follows each; where a memory was given, also the memory for the next
        segment.

    Raises:
        UsageError: If `config` is something else, or there are not as many
            rows as the model keeps a memory of.

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

    def __init__(self, config, batch_size=None, **kwargs):
        if not isinstance(config, TransformerXLConfig):
            raise UsageError(
                "A TransformerXL is made of a TransformerXLConfig, not of "
                f"{config!r}. By the name of a preset it is made with "
                "TransformerXL.from_preset(name)."
            )
        if batch_size is not None:
            check_positive_integer("batch_size", batch_size)
        super().__init__(**kwargs)
        # Token ids may be floats, see `TokenAndPositionEmbedding`.
        self.autocast = False
        self.config = config
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
        self.build()

    @classmethod
    def from_preset(cls, preset, batch_size=None, dtype=None, **overrides):
        """A new, untrained model of a named size.

        Args:
            preset: Name of a row in `XL_PRESETS`.
            batch_size: See the class.
            dtype: Dtype policy. Defaults to Keras's global policy.
            **overrides: Fields of `TransformerXLConfig` to change.

        Returns:
            A `TransformerXL`.

        Raises:
            UsageError: If the preset or a field is unknown, or a field's value
                makes no sense.
        """
        check_names("preset", [preset], XL_PRESETS)
        config = XL_PRESETS[preset].replace(**overrides)
        return cls(config, batch_size, dtype=dtype)

    def build(self, input_shape=None):
        config = self.config
        self.embedding.build()
        for index in range(config.num_layers):
            cell = TransformerXLCell(
                config.intermediate_dim,
                config.num_heads,
                binding=config.binding,
                attention=config.attention,
                attention_options=config.attention_options,
                key_dim=config.key_dim or None,
                sliding_window=config.memory_length
                if config.same_length
                else None,
                dropout=config.dropout,
                layer_norm_epsilon=config.layer_norm_epsilon,
                dtype=self.dtype_policy,
                name=f"cell_{index}",
            )
            if self.cells and config.attention == "transformer_xl":
                cell.share_biases(self.cells[0])
            cell.build((None, None, config.hidden_dim))
            self.cells.append(cell)
        self.output_bias = self.add_weight(
            name="output_bias",
            shape=(config.vocabulary_size,),
            initializer="zeros",
        )
        self.dropout_layer = keras.layers.Dropout(
            config.dropout, dtype=self.dtype_policy
        )
        if self.batch_size is not None:
            self.memory = keras.tree.map_structure(
                lambda values: keras.Variable(values, trainable=False),
                self.init_memory(self.batch_size),
            )
        self.built = True

    def init_memory(self, batch_size):
        """An empty memory.

        Args:
            batch_size: Number of streams.

        Returns:
            Dict of `states`, a tensor `(batch, memory_length, hidden_dim)` of
            each cell, and `length`, int32 `(batch,)`: how many of the last
            positions of a stream's memory hold something.
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

    def reset_memory(self):
        """Forgets what the model keeps of its streams.

        Raises:
            UsageError: If it keeps nothing.
        """
        if self.batch_size is None:
            raise UsageError(
                "This TransformerXL keeps no memory. Make it with a "
                "`batch_size`, or give it a memory with every call."
            )
        for variable in keras.tree.flatten(self.memory):
            variable.assign(ops.zeros(variable.shape, variable.dtype))

    def call(self, token_ids, memory=None, training=None):
        is_kept = memory is None and self.batch_size is not None
        if is_kept:
            self._check_rows(token_ids)
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

    def _check_rows(self, token_ids):
        rows = token_ids.shape[0]
        if rows not in (None, self.batch_size):
            raise UsageError(
                f"This TransformerXL keeps the memory of {self.batch_size} "
                f"streams. Received: {rows} rows of token ids."
            )

    def _memory_mask(self, length):
        places = ops.arange(self.config.memory_length, dtype="int32")
        first = self.config.memory_length - length
        return places[None, :] >= first[:, None]

    def _remember(self, memory, inputs):
        """The memory with the cells' inputs of one more segment."""
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

    def export(
        self,
        filepath,
        format="tf_saved_model",
        verbose=None,
        input_signature=None,
        **kwargs,
    ):
        """Exports the forward pass, as every Keras model does.

        Token ids to logits. A memory that the model keeps is exported with
        it, and read on in.

        Args:
            filepath: Folder, or file, to write.
            format: See `keras.Model.export`.
            verbose: See there.
            input_signature: See there. Defaults to int32 token ids of any
                length, and of any number of rows if the model keeps no memory
                of them. JAX exports given sizes alone.
            **kwargs: See there.
        """
        if input_signature is None:
            shape = (self.batch_size, None)
            input_signature = [
                keras.InputSpec("int32", shape, name="token_ids")
            ]
        super().export(filepath, format, verbose, input_signature, **kwargs)

    def get_config(self):
        return {
            **super().get_config(),
            "config": dataclasses.asdict(self.config),
            "batch_size": self.batch_size,
            "dtype": dtype_config(self),
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        config["config"] = TransformerXLConfig(**config["config"])
        return cls(**config)


def load_language_model(model_dir, best=False):
    """Loads a trained language model from its folder, vocabulary included.

    Args:
        model_dir: Folder that a training left a finished model in.
        best: Whether to load the best model in validation instead of the last
            one.

    Returns:
        A `TransformerXL` without a memory.

    Raises:
        UsageError: If the folder holds no such model, or a damaged one.
    """
    return load_model(model_dir, best, (TransformerXL,))
