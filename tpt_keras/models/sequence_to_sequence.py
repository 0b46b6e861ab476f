import dataclasses
import warnings

import keras
from keras import ops

from tpt_keras.answer import unanswered
from tpt_keras.decoding import Generator
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names
from tpt_keras.layers import dtype_config
from tpt_keras.models.presets import PRESETS
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
        self._generator = Generator(self)

    def quantize(self, mode=None, config=None, filters=None, **kwargs):
        """Quantizes the maps; see `keras.Model.quantize`.

        Args:
            mode: See `keras.Model.quantize`.
            config: See `keras.Model.quantize`.
            filters: See `keras.Model.quantize`. Defaults to every map. Keras
                warns of each other layer.
            **kwargs: See `keras.Model.quantize`.
        """
        if filters is None:
            filters = _is_map
        super().quantize(mode, config=config, filters=filters, **kwargs)

    def get_compile_config(self):
        # Adapters are saved merged. The state of their optimizer fits no
        # model without them.
        layers = self._flatten_layers()
        if any(getattr(layer, "lora_enabled", False) for layer in layers):
            return {}
        return super().get_compile_config()

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
        """Decodes answers greedily, as token ids.

        A `Generator` decodes in other ways, and compiled.

        Args:
            encoder_token_ids: Integer tensor `(batch, source_length)`.
            max_length: Most tokens to decode. Defaults to
                `config.max_answer_length`.

        Returns:
            int32 tensor `(batch, max_length)`, padded behind the end symbol.

        Raises:
            UsageError: If `max_length` is no positive integer.
        """
        generator = Generator(self, max_length=max_length)
        return generator.generate(encoder_token_ids)["token_ids"][:, 0]

    def solve(self, questions, batch_size=64):
        """Answers questions greedily.

        A question that cannot be answered (it is empty or too long, or has a
        character that is not in the vocabulary) gets an empty string, and one
        warning names all such questions. `Generator.answer` gives the status
        and the log-probability of each answer.

        Args:
            questions: List of strings.
            batch_size: Number of questions decoded together.

        Returns:
            List of as many strings.

        Raises:
            UsageError: If a question is no string, or `batch_size` is no
                positive integer.
        """
        answers = self._generator.answer(questions, batch_size=batch_size)
        config = self.config
        faults = unanswered(
            questions, answers, config.vocabulary, config.max_question_length
        )
        if faults:
            warnings.warn(faults, stacklevel=2)
        return [answer.text for answer in answers]

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


def _is_map(layer):
    return isinstance(layer, keras.layers.EinsumDense)
