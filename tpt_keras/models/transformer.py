import dataclasses
import math

import keras
from keras import ops

from tpt_keras.decoding.beam_search import beam_search
from tpt_keras.decoding.beam_search import penalty_divisor
from tpt_keras.decoding.greedy_search import greedy_search
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names
from tpt_keras.errors import check_positive_integer
from tpt_keras.layers import DecoderCell
from tpt_keras.layers import EncoderCell
from tpt_keras.layers import TokenAndPositionEmbedding
from tpt_keras.layers.dtype_config import dtype_config
from tpt_keras.models.presets import PRESETS
from tpt_keras.models.transformer_config import TransformerConfig
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer


@keras.saving.register_keras_serializable("tpt_keras")
class Transformer(keras.Model):
    """The sequence-to-sequence model: a question's tokens to an answer's.

    One embedding for questions and answers, tied to the output layer; encoder
    cells over the question; decoder cells over the answer so far.

    Args:
        config: A `TransformerConfig`.
        **kwargs: Keras's base model arguments.

    Call arguments:
        inputs: Dict of `encoder_token_ids` `(batch, source_length)`, the
            question, and `decoder_token_ids` `(batch, target_length)`, the
            answer, which starts with the start symbol. Both are padded at the
            end.
        training: Whether to apply dropout.

    Returns:
        float32 logits `(batch, target_length, vocabulary_size)`: at every
        position those of the token that follows it.

    Raises:
        UsageError: If `config` is something else, or its vocabulary is none.

    Example:

    >>> model = Transformer.from_preset("tp_transformer_tiny", num_layers=1)
    >>> ids = keras.ops.array([[1, 15, 9, 15, 2]])
    >>> model({"encoder_token_ids": ids, "decoder_token_ids": ids}).shape
    (1, 5, 72)
    >>> len(model.solve(["What is 1 + 1?"]))
    1
    """

    def __init__(self, config, **kwargs):
        if not isinstance(config, TransformerConfig):
            raise UsageError(
                f"A Transformer is made of a TransformerConfig, not of "
                f"{config!r}. By the name of a preset it is made with "
                "Transformer.from_preset(name)."
            )
        super().__init__(**kwargs)
        # Token ids may be floats, see `TokenAndPositionEmbedding`.
        self.autocast = False
        self.config = config
        self.tokenizer = CharacterTokenizer(config.vocabulary)
        self.embedding = TokenAndPositionEmbedding(
            config.vocabulary_size,
            config.hidden_dim,
            bind_embeddings=config.bind_embeddings,
            positions=config.positions,
            dropout=config.dropout,
            dtype=self.dtype_policy,
            name="embedding",
        )
        self.encoder_cells = [
            self._cell(EncoderCell, f"encoder_cell_{index}")
            for index in range(config.num_layers)
        ]
        self.decoder_cells = [
            self._cell(DecoderCell, f"decoder_cell_{index}")
            for index in range(config.num_layers)
        ]
        self.build()

    @classmethod
    def from_preset(cls, preset, dtype=None, **overrides):
        """A new, untrained model of a named variant.

        Args:
            preset: Name of a row in `PRESETS`.
            dtype: Dtype policy, for instance `"mixed_bfloat16"`. Defaults to
                Keras's global policy.
            **overrides: Fields of `TransformerConfig` to change.

        Returns:
            A `Transformer`.

        Raises:
            UsageError: If the preset or a field is unknown, or a field's value
                makes no sense.
        """
        check_names("preset", [preset], PRESETS)
        return cls(PRESETS[preset].replace(**overrides), dtype=dtype)

    def _cell(self, cell_class, name):
        config = self.config
        kernel_initializer, bias_initializer = _attention_initializers(config)
        return cell_class(
            config.intermediate_dim,
            config.num_heads,
            binding=config.binding,
            binding_options=config.binding_options,
            score=config.attention,
            score_options=config.attention_options,
            dropout=config.dropout,
            layer_norm_epsilon=config.layer_norm_epsilon,
            attention_kernel_initializer=kernel_initializer,
            attention_bias_initializer=bias_initializer,
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, input_shape=None):
        # No weight depends on the input's shape, so a model is built when it
        # is made, and weights can be loaded at once.
        shape = (None, None, self.config.hidden_dim)
        self.embedding.build()
        for cell in self.encoder_cells:
            cell.build(shape)
        for cell in self.decoder_cells:
            cell.build(shape, shape)
        self.built = True

    def call(self, inputs, training=None):
        encoder_token_ids = inputs["encoder_token_ids"]
        decoder_token_ids = inputs["decoder_token_ids"]
        encoder_padding_mask = self.padding_mask(encoder_token_ids)
        encoder_output = self.encode(encoder_token_ids, training=training)
        x = self.embedding(decoder_token_ids, training=training)
        for cell in self.decoder_cells:
            x = cell(
                x,
                encoder_output,
                decoder_padding_mask=self.padding_mask(decoder_token_ids),
                encoder_padding_mask=encoder_padding_mask,
                training=training,
            )
        return self.embedding(x, reverse=True)

    def padding_mask(self, token_ids):
        """Boolean tensor of the shape of `token_ids`, true at real tokens."""
        return ops.not_equal(token_ids, self.tokenizer.pad_id)

    def encode(self, encoder_token_ids, training=None):
        """The encoder's output.

        Args:
            encoder_token_ids: Tensor `(batch, source_length)`.
            training: Whether to apply dropout.

        Returns:
            Tensor `(batch, source_length, hidden_dim)`.
        """
        padding_mask = self.padding_mask(encoder_token_ids)
        x = self.embedding(encoder_token_ids, training=training)
        for cell in self.encoder_cells:
            x = cell(x, padding_mask=padding_mask, training=training)
        return x

    def init_cache(self, encoder_token_ids, max_length):
        """Encodes questions and prepares to decode their answers.

        Args:
            encoder_token_ids: Tensor `(batch, source_length)`.
            max_length: Most tokens to decode, an integer.

        Returns:
            Dict for `decode_step`: `encoder_padding_mask` `(batch,
            source_length)` and, for every decoder cell, the caches of its
            `cross_attention` and its `self_attention`, tensors `(batch, ...)`.

        Raises:
            UsageError: If `max_length` is no positive integer.
        """
        check_positive_integer("max_length", max_length)
        encoder_output = self.encode(encoder_token_ids)
        batch_size = ops.shape(encoder_token_ids)[0]
        padding_mask = self.padding_mask(encoder_token_ids)
        return {
            "encoder_padding_mask": padding_mask,
            "cross_attention": tuple(
                cell.cross_attention_keys_and_values(
                    encoder_output, padding_mask
                )
                for cell in self.decoder_cells
            ),
            "self_attention": tuple(
                cell.init_cache(batch_size, max_length)
                for cell in self.decoder_cells
            ),
        }

    def decode_step(self, token_ids, cache, cache_update_index):
        """One step of decoding: the logits of the next token.

        Args:
            token_ids: The last tokens `(batch,)`.
            cache: What `init_cache` or the last step returned.
            cache_update_index: Position of `token_ids`, a scalar.

        Returns:
            float32 logits `(batch, vocabulary_size)` and the updated cache.
        """
        x = self.embedding(
            ops.expand_dims(token_ids, -1), start_index=cache_update_index
        )  # (batch, 1, hidden_dim)
        self_attention = []
        for cell, self_cache, cross_cache in zip(
            self.decoder_cells,
            cache["self_attention"],
            cache["cross_attention"],
        ):
            x, self_cache = cell(
                x,
                encoder_padding_mask=cache["encoder_padding_mask"],
                self_attention_cache=self_cache,
                cross_attention_cache=cross_cache,
                cache_update_index=cache_update_index,
            )
            self_attention.append(self_cache)
        logits = self.embedding(x, reverse=True)
        cache = {**cache, "self_attention": tuple(self_attention)}
        return ops.squeeze(logits, 1), cache

    def generate(self, encoder_token_ids, max_length=None):
        """Answers as token ids, decoded greedily.

        Args:
            encoder_token_ids: Tensor `(batch, source_length)`.
            max_length: See `search`.

        Returns:
            int32 tensor `(batch, max_length)`, padded behind the end symbol.
        """
        return self.search(encoder_token_ids, max_length)["token_ids"][:, 0]

    def search(
        self,
        encoder_token_ids,
        max_length=None,
        beam_width=1,
        length_penalty=0.0,
    ):
        """The best answers that greedy or beam search finds.

        Args:
            encoder_token_ids: Tensor `(batch, source_length)`.
            max_length: Most tokens to decode, those of an answer and of its end
                symbol. Defaults to `config.max_answer_length`: an answer as
                long as that is the longest, and needs no end.
            beam_width: Number of answers to follow, and to return; `1` is
                greedy search.
            length_penalty: How much longer answers are preferred, see
                `beam_search`.

        Returns:
            Dict, the best answer first: `token_ids`, int32 `(batch,
            beam_width, max_length)`, padded behind the end symbol;
            `log_probs`, those of these tokens (of the end symbol only where it
            is among them), and `scores`, float32 `(batch, beam_width)`.

        Raises:
            UsageError: If `max_length` or `beam_width` is no positive integer,
                or `length_penalty` no finite number.
        """
        check_positive_integer("beam_width", beam_width)
        if max_length is None:
            max_length = self.config.max_answer_length
        cache = self.init_cache(encoder_token_ids, max_length)
        # Every beam of a row reads the same question.
        cache = keras.tree.map_structure(
            lambda values: (
                ops.repeat(values, beam_width, axis=0)
                if beam_width > 1
                else values
            ),
            cache,
        )

        def step(token_ids, self_attention, index):
            # Only what changes is carried from step to step.
            logits, new_cache = self.decode_step(
                token_ids, {**cache, "self_attention": self_attention}, index
            )
            return logits, new_cache["self_attention"]

        common = {
            "step": step,
            "cache": cache["self_attention"],
            "batch_size": ops.shape(encoder_token_ids)[0],
            "max_length": max_length,
            "start_id": self.tokenizer.start_id,
            "end_id": self.tokenizer.end_id,
            "pad_id": self.tokenizer.pad_id,
        }
        if beam_width > 1:
            return beam_search(
                **common, beam_width=beam_width, length_penalty=length_penalty
            )
        token_ids, log_probs = greedy_search(**common)
        log_probs = ops.expand_dims(log_probs, 1)
        lengths = ops.sum(
            ops.cast(self.padding_mask(token_ids), "int32"),
            axis=-1,
            keepdims=True,
        )
        return {
            "token_ids": ops.expand_dims(token_ids, 1),
            "log_probs": log_probs,
            "scores": log_probs / penalty_divisor(lengths, length_penalty),
        }

    def solve(self, questions, batch_size=64):
        """Answers questions.

        Args:
            questions: List of strings.
            batch_size: Number of questions decoded together.

        Returns:
            List of as many strings.

        Raises:
            UsageError: If a question is empty or too long, or holds a
                character that is not in the vocabulary, or if `batch_size` is
                no positive integer.
        """
        if isinstance(questions, str):
            raise TypeError("`questions` must be a list of strings.")
        check_positive_integer("batch_size", batch_size)
        answers = []
        for start in range(0, len(questions), batch_size):
            token_ids = self.tokenizer.encode_questions(
                questions[start : start + batch_size],
                max_length=self.config.max_question_length,
            )
            answers += map(
                self.tokenizer.decode, self._generate_compiled(token_ids)
            )
        return answers

    def _generate_compiled(self, token_ids):
        """`generate` as a compiled function of arrays, on every backend."""
        # LoRA and quantization exchange variables under what was compiled.
        variables = tuple(map(id, self.variables))
        if variables != getattr(self, "_generator_variables", None):
            self._generator_variables = variables
            # Kept as a bound method: Keras would track the generator itself,
            # which holds this model, as one of this model's layers.
            self._predict_generator = _Generator(self).predict_on_batch
        return self._predict_generator(token_ids)

    def export(
        self,
        filepath,
        format="tf_saved_model",
        verbose=None,
        input_signature=None,
        **kwargs,
    ):
        """Exports the forward pass, as every Keras model does.

        Token ids to logits: the endpoint takes the dict that a call takes, of
        any size. For an export from questions to answers, with its decoding
        and what TF Serving needs, see `tpt_keras.serving.export`.

        Args:
            filepath: Folder, or file, to write.
            format: See `keras.Model.export`.
            verbose: See there.
            input_signature: See there. Defaults to int32 token ids of any
                batch size and lengths.
            **kwargs: See there.

        Example:

        ```python
        model.export("exported")
        logits = tf.saved_model.load("exported").serve(
            {"encoder_token_ids": questions, "decoder_token_ids": answers}
        )
        ```
        """
        if input_signature is None:
            input_signature = [
                {
                    name: keras.InputSpec("int32", (None, None), name=name)
                    for name in ("encoder_token_ids", "decoder_token_ids")
                }
            ]
        super().export(filepath, format, verbose, input_signature, **kwargs)

    def get_config(self):
        return {
            **super().get_config(),
            "config": dataclasses.asdict(self.config),
            "dtype": dtype_config(self),
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        config["config"] = TransformerConfig(**config["config"])
        return cls(**config)


class _Generator(keras.Model):
    """`Transformer.generate` as a model, for Keras to compile it."""

    def __init__(self, transformer):
        super().__init__(name="generator", dtype=transformer.dtype_policy)
        self.transformer = transformer
        # XLA would compile anew for every length of question.
        self.compile(jit_compile=keras.backend.backend() == "jax")

    def call(self, encoder_token_ids):
        return self.transformer.generate(encoder_token_ids)


def _attention_initializers(config):
    """Initializers of the attention's matrices and biases.

    The released TP-Attention never calls its Xavier initialiser, so that it
    keeps `torch.nn.Linear`'s: uniform within `1 / sqrt(fan_in)`, where
    `fan_in` is the hidden size in all of its maps. The released baseline does
    call it.
    """
    if config.initialization == "released" and config.binding != "none":
        limit = 1.0 / math.sqrt(config.hidden_dim)
        return (
            keras.initializers.VarianceScaling(
                scale=1.0 / 3.0, mode="fan_in", distribution="uniform"
            ),
            keras.initializers.RandomUniform(-limit, limit),
        )
    return "glorot_uniform", "zeros"
