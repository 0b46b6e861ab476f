import dataclasses

import keras
from keras import ops

from tpt_keras.decoding.beam_search import beam_search
from tpt_keras.decoding.beam_search import penalty_divisor
from tpt_keras.decoding.greedy_search import greedy_search
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names
from tpt_keras.errors import check_positive_integer
from tpt_keras.layers import dtype_config
from tpt_keras.models.presets import PRESETS
from tpt_keras.models.searcher import Searcher
from tpt_keras.models.trained_presets import TRAINED_PRESETS
from tpt_keras.models.trained_presets import trained_preset
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer


class SequenceToSequence(keras.Model):
    """What every model from a question's tokens to an answer's has in common.

    Training, evaluation, tuning, export and serving know a model by this
    alone. A subclass names its configuration and defines:

    - `call`, which gives the logits of whole answers at once;
    - `encode`, which reads the questions;
    - `init_cache` and `decode_step`, which give the same logits token by
      token. What a step changes of the cache, the entries that
      `changing_caches` names, is carried from step to step; all tensors in
      the cache are `(batch, ...)`, for beams repeat and choose among rows;
    - `grow_cache`, where there is room for so many tokens in the cache.

    It makes its weights when it is made, and is registered with Keras, so
    that it can be loaded.

    Args:
        config: A configuration of the class `config_class`.
        **kwargs: Keras's base model arguments.

    Call arguments:
        inputs: Dict of `encoder_token_ids` `(batch, source_length)`, the
            question, and `decoder_token_ids` `(batch, target_length)`, the
            answer, which starts with the start symbol. Both are padded at the
            end. Integers of any dtype, floats too.
        training: Whether to apply dropout.

    Returns:
        float32 logits `(batch, target_length, vocabulary_size)`: at every
        position those of the token that follows it.

    Raises:
        UsageError: If `config` is something else, or its vocabulary is none.

    Example:

    >>> model = SequenceToSequence.from_preset("tp_transformer_tiny")
    >>> type(model).__name__
    'Transformer'
    >>> len(model.solve(["What is 1 + 1?"]))
    1
    """

    # The class of the configurations; each model has its own.
    config_class = None
    # The cache's entries that `decode_step` changes.
    changing_caches = ()

    def __init__(self, config, **kwargs):
        if not self.takes(config):
            name = type(self).__name__
            raise UsageError(
                f"No {name} can be made of {config!r}. `build_model` makes the "
                "model of any configuration; by the name of a preset it is "
                f"made with {name}.from_preset(name)."
            )
        super().__init__(**kwargs)
        # Token ids may be floats (`keras.Input` has them so), which a dtype of
        # few digits would round to others.
        self.autocast = False
        self.config = config
        self.tokenizer = CharacterTokenizer(config.vocabulary)

    def make_train_function(self, force=False):
        # An optimizer that makes its variables inside TensorFlow's graph has
        # the step traced twice, with a conditional for every variable.
        if self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    @classmethod
    def takes(cls, config):
        """Whether a model of this class is made of `config`."""
        return cls.config_class is not None and isinstance(
            config, cls.config_class
        )

    @classmethod
    def from_preset(cls, preset, dtype=None, load_weights=None, **overrides):
        """A model by its name: a new one of a variant, or a trained one.

        `SequenceToSequence.from_preset` makes any preset, as what it is; the
        class of a model makes its own alone.

        Args:
            preset: Name of a row in `PRESETS`, the variants, or of a trained
                model, one of `TRAINED_PRESETS`.
            dtype: Dtype policy, for instance `"mixed_bfloat16"`. Defaults to
                Keras's global policy.
            load_weights: Whether the model is a trained one; without, its
                weights are new. Defaults to whether the preset has trained
                weights, which the variants do not.
            **overrides: Fields of the preset's configuration to change; with
                trained weights, those that no weight depends on (`dropout`).

        Returns:
            A model of this class.

        Raises:
            UsageError: If the preset or a field is unknown, if a field's value
                makes no sense, if the preset is of another class, or if
                trained weights are asked for that there are not, that are
                not for these fields, or that are damaged.

        Example:

        ```python
        model = Transformer.from_preset("tp_transformer_mathematics")
        model.solve(["What is the tens digit of 31859?"])  # ['5']
        ```
        """
        check_names("preset", [preset], [*PRESETS, *TRAINED_PRESETS])
        if preset in PRESETS:
            if load_weights:
                raise UsageError(
                    f"The preset {preset!r} has no trained weights. Those that "
                    f"have: {', '.join(TRAINED_PRESETS)}."
                )
            return cls._of(preset, PRESETS[preset].replace(**overrides), dtype)
        trained = trained_preset(preset)
        model = cls._of(preset, trained.config.replace(**overrides), dtype)
        if load_weights is None or load_weights:
            trained.assign_to(model)
        return model

    @classmethod
    def _of(cls, preset, config, dtype):
        """A new model of a preset's configuration, of this class."""
        # What builds every model knows this class.
        from tpt_keras.models.build_model import model_class

        if cls.takes(config):
            return cls(config, dtype=dtype)
        found = model_class(config)
        if not issubclass(found, cls):
            raise UsageError(
                f"The preset {preset!r} is no {cls.__name__}. It is made with "
                f"{found.__name__}.from_preset, and any preset with "
                "SequenceToSequence.from_preset."
            )
        return found(config, dtype=dtype)

    def padding_mask(self, token_ids):
        """Boolean tensor of the shape of `token_ids`, true at real tokens."""
        return ops.not_equal(token_ids, self.tokenizer.pad_id)

    def encode(self, encoder_token_ids, training=None):
        """What the model makes of questions.

        Args:
            encoder_token_ids: Tensor `(batch, source_length)`.
            training: Whether to apply dropout.

        Returns:
            Tensor or tensors `(batch, ...)`.
        """
        raise NotImplementedError

    def init_cache(self, encoder_token_ids, max_length):
        """Encodes questions and prepares to decode their answers.

        Args:
            encoder_token_ids: Tensor `(batch, source_length)`.
            max_length: Most tokens to decode, an integer.

        Returns:
            Dict for `decode_step` of tensors `(batch, ...)`, nested in any
            way.

        Raises:
            UsageError: If `max_length` is no positive integer.
        """
        raise NotImplementedError

    def grow_cache(self, cache, max_length):
        """A cache with room for more tokens, where it has room for some.

        Args:
            cache: What `init_cache`, `decode_step` or this returned.
            max_length: Most tokens to decode, no fewer than it was made for,
                an integer or a scalar tensor.

        Returns:
            Dict for `decode_step`.
        """
        return cache

    def decode_step(self, token_ids, cache, cache_update_index):
        """One step of decoding: the logits of the next token.

        Args:
            token_ids: The last tokens `(batch,)`.
            cache: What `init_cache` or the last step returned.
            cache_update_index: Position of `token_ids`, a scalar.

        Returns:
            float32 logits `(batch, vocabulary_size)` and the updated cache.
        """
        raise NotImplementedError

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
        if max_length is None:
            max_length = self.config.max_answer_length
        return self.search_from(
            self.init_cache(encoder_token_ids, max_length),
            ops.shape(encoder_token_ids)[0],
            max_length,
            beam_width,
            length_penalty,
        )

    def search_from(
        self,
        cache,
        batch_size,
        max_length,
        beam_width=1,
        length_penalty=0.0,
        while_loop=None,
    ):
        """As `search`, of questions that have been encoded.

        Args:
            cache: What `init_cache` returned.
            batch_size: Number of questions, an integer or a scalar tensor.
            max_length: See `search`.
            beam_width: See `search`.
            length_penalty: See `search`.
            while_loop: What runs the steps, see `greedy_search`. It may let
                go of rows that have ended, and may begin with less room than
                `max_length` where it makes more with `grow_cache` in time.

        Returns:
            What `search` returns.

        Raises:
            UsageError: See `search`.
        """
        check_positive_integer("beam_width", beam_width)
        # Every beam of a row reads the same question.
        if beam_width > 1:
            cache = keras.tree.map_structure(
                lambda values: ops.repeat(values, beam_width, axis=0), cache
            )

        def step(token_ids, cache, index):
            logits, cache = self.decode_step(token_ids, cache, index)
            return logits, {name: cache[name] for name in self.changing_caches}

        common = {
            "step": step,
            "cache": cache,
            "batch_size": batch_size,
            "max_length": max_length,
            "start_id": self.tokenizer.start_id,
            "end_id": self.tokenizer.end_id,
            "pad_id": self.tokenizer.pad_id,
            "while_loop": while_loop,
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
        questions = list(questions)
        # Questions of like length together, or most of a batch is padding.
        order = sorted(
            range(len(questions)), key=lambda i: len(str(questions[i]))
        )
        batches = [
            order[start : start + batch_size]
            for start in range(0, len(questions), batch_size)
        ]
        # All of them before any is answered: one of them may be refused.
        encoded = [
            self.tokenizer.encode_questions(
                [questions[place] for place in places],
                max_length=self.config.max_question_length,
            )
            for places in batches
        ]
        answers = [""] * len(questions)
        for places, token_ids in zip(batches, encoded):
            rows = self.search_on_batch(token_ids)["token_ids"][:, 0]
            for place, row in zip(places, rows):
                answers[place] = self.tokenizer.decode(row)
        return answers

    def search_on_batch(self, encoder_token_ids, max_length=None, beam_width=1):
        """`search` as a compiled function, on every backend.

        It is compiled once; on JAX once for every number of rows and some
        lengths, to which questions are padded.

        Args:
            encoder_token_ids: Integer array `(batch, source_length)`.
            max_length: See `search`.
            beam_width: See `search`.

        Returns:
            What `search` returns, as NumPy arrays.
        """
        if max_length is None:
            max_length = self.config.max_answer_length
        # LoRA and quantization exchange variables under what was compiled.
        compiled_for = max_length, beam_width, *map(id, self.variables)
        if compiled_for != getattr(self, "_searcher_compiled_for", None):
            self._searcher_compiled_for = compiled_for
            # Kept as a bound method: Keras would track the searcher itself,
            # which holds this model, as one of this model's layers.
            self._search_compiled = Searcher(
                self, max_length, beam_width
            ).search_on_batch
        return self._search_compiled(encoder_token_ids)

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
        config["config"] = cls.config_class(**config["config"])
        return cls(**config)
