from typing import Any

import keras
from keras import ops

from tpt_keras.layers import DecoderCell
from tpt_keras.layers import DigitPlaceEmbedding
from tpt_keras.layers import EncoderCell
from tpt_keras.layers import FanInUniform
from tpt_keras.layers import TokenAndPositionEmbedding
from tpt_keras.models.configs import TransformerConfig
from tpt_keras.models.sequence_to_sequence import SequenceToSequence


@keras.saving.register_keras_serializable("tpt_keras")
class Transformer(SequenceToSequence):
    """The Transformer and the TP-Transformer, from a question to an answer.

    It has one embedding for questions and answers, tied to the output layer,
    encoder cells and decoder cells. It is called as every `SequenceToSequence`.

    Args:
        config: A `TransformerConfig`.
        **kwargs: Keras's base model arguments.

    Example:

    >>> model = Transformer.from_preset("tp_transformer_tiny", num_layers=1)
    >>> ids = keras.ops.array([[1, 15, 9, 15, 2]])
    >>> model({"encoder_token_ids": ids, "decoder_token_ids": ids}).shape
    (1, 5, 72)
    >>> len(model.solve(["What is 1 + 1?"]))
    1
    """

    config_class = TransformerConfig
    config: TransformerConfig
    changing_caches: tuple[str, ...] = ("self_attention",)

    def __init__(self, config: TransformerConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.embedding = TokenAndPositionEmbedding(
            config.vocabulary_size,
            config.hidden_dim,
            bind_embeddings=config.bind_embeddings,
            bias_initializer=self._bias_initializer(),
            positions=config.positions,
            dropout=config.dropout,
            dtype=self.dtype_policy,
            name="embedding",
        )
        self.digit_places: Any = None
        self._answers_have_places = False
        if config.digit_places:
            # In the order of writing, the places of digits follow from those
            # that are not written yet.
            self._answers_have_places = config.answer_order != "as_written"
            self.digit_places = DigitPlaceEmbedding(
                self.tokenizer.digit_ids,
                config.hidden_dim,
                self.tokenizer.point_id,
                dtype=self.dtype_policy,
                name="digit_places",
            )
        self.encoder_cells = [
            self._cell(EncoderCell, f"encoder_cell_{index}")
            for index in range(config.num_layers)
        ]
        self.decoder_cells = [
            self._cell(DecoderCell, f"decoder_cell_{index}")
            for index in range(config.num_decoder_layers or config.num_layers)
        ]
        if self._answers_have_places:
            self.changing_caches += ("next_place",)
        self.build()

    def _cell(self, cell_class, name):
        config = self.config
        return cell_class(
            config.intermediate_dim,
            config.num_heads,
            binding=config.binding,
            binding_options=config.binding_options,
            attention=config.attention,
            attention_options=config.mechanism_options,
            dropout=config.dropout,
            layer_norm_epsilon=config.layer_norm_epsilon,
            attention_kernel_initializer=self._attention_initializer(),
            bias_initializer=self._bias_initializer(),
            dtype=self.dtype_policy,
            name=name,
        )

    def _bias_initializer(self):
        # The released code initializes kernels alone.
        is_released = self.config.initialization == "released"
        return FanInUniform() if is_released else "zeros"

    def _attention_initializer(self):
        # The initializer of the released TP-Attention is never called.
        config = self.config
        if config.initialization == "released" and config.binding != "none":
            return FanInUniform()
        return "glorot_uniform"

    def build(self, input_shape=None):
        # No weight depends on the inputs, so that a new model is built at once.
        shape = (None, None, self.config.hidden_dim)
        self.embedding.build()
        if self.digit_places is not None:
            self.digit_places.build()
        for cell in self.encoder_cells:
            cell.build(shape)
        for cell in self.decoder_cells:
            cell.build(shape, shape)
        self.built = True

    def call(self, inputs, training=None):
        encoder_token_ids = inputs["encoder_token_ids"]
        decoder_token_ids = inputs["decoder_token_ids"]
        masks = {
            "decoder_padding_mask": self.padding_mask(decoder_token_ids),
            "encoder_padding_mask": self.padding_mask(encoder_token_ids),
        }
        encoder_output = self.encode(encoder_token_ids, training=training)
        x = self.embed_answers(decoder_token_ids, training)
        for cell in self.decoder_cells:
            x = cell(x, encoder_output, **masks, training=training)
        return self.embedding(x, reverse=True)

    def encode(self, encoder_token_ids, training=None):
        padding_mask = self.padding_mask(encoder_token_ids)
        x = self.embed_questions(encoder_token_ids, training)
        for cell in self.encoder_cells:
            x = cell(x, padding_mask=padding_mask, training=training)
        return x

    def embed_questions(self, token_ids, training=None):
        """Embeds questions, with the places of their digits."""
        places = None
        if self.digit_places is not None:
            places = self.digit_places(token_ids)
        return self.embedding(token_ids, added=places, training=training)

    def embed_answers(self, token_ids, training=None):
        """Embeds answers, with the places of their digits."""
        places = None
        if self._answers_have_places:
            places = self.digit_places(token_ids, units_first=True)
        return self.embedding(token_ids, added=places, training=training)

    def init_cache(self, encoder_token_ids, max_length):
        encoder_output = self.encode(encoder_token_ids)
        batch_size = ops.shape(encoder_token_ids)[0]
        mask = self.padding_mask(encoder_token_ids)
        cache = {
            "encoder_padding_mask": mask,
            "cross_attention": tuple(
                cell.cross_attention_keys_and_values(encoder_output, mask)
                for cell in self.decoder_cells
            ),
            "self_attention": tuple(
                cell.init_cache(batch_size, max_length)
                for cell in self.decoder_cells
            ),
        }
        if self._answers_have_places:
            cache["next_place"] = ops.ones((batch_size,), "int32")
        return cache

    def grow_cache(self, cache, max_length):
        pairs = zip(self.decoder_cells, cache["self_attention"])
        grown = (cell.grow_cache(past, max_length) for cell, past in pairs)
        return {**cache, "self_attention": tuple(grown)}

    def decode_step(self, token_ids, cache, cache_update_index):
        token_ids = ops.expand_dims(token_ids, -1)
        changed, places = {}, None
        if self._answers_have_places:
            places, changed["next_place"] = self.digit_places.embed_step(
                token_ids, cache["next_place"]
            )
        x = self.embedding(
            token_ids, start_index=cache_update_index, added=places
        )  # (batch, 1, hidden_dim)
        self_attention = []
        mask = cache["encoder_padding_mask"]
        caches = zip(cache["self_attention"], cache["cross_attention"])
        for cell, (self_cache, cross_cache) in zip(self.decoder_cells, caches):
            x, self_cache = cell.decode_step(
                x, self_cache, cross_cache, cache_update_index, mask
            )
            self_attention.append(self_cache)
        logits = self.embedding(x, reverse=True)
        changed["self_attention"] = tuple(self_attention)
        return ops.squeeze(logits, 1), {**cache, **changed}
