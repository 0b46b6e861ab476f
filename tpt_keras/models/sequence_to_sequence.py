import concurrent.futures
import random
from collections.abc import Sequence
from typing import Any
from typing import Self

import keras
from keras import ops

from tpt_keras.answer import solve
from tpt_keras.decoding import Generator
from tpt_keras.decoding.generator import check_token_ids
from tpt_keras.errors import UsageError
from tpt_keras.models.base_model import StringsModel
from tpt_keras.models.base_model import refuse_strings
from tpt_keras.models.configs import SequenceToSequenceConfig
from tpt_keras.models.presets import PRESETS
from tpt_keras.models.presets import TRAINED_PRESETS
from tpt_keras.models.stored import load_changed
from tpt_keras.models.stored import load_model
from tpt_keras.typing import StrPath


class SequenceToSequence(StringsModel):
    """Base class of the models that answer questions.

    Training, evaluation, tuning, export and serving use a model by this
    interface alone. A subclass names its configuration and defines `call`,
    which computes the logits of whole answers at once; `encode`, `init_cache`
    and `decode_step`, which compute the same logits token by token; and
    `grow_cache`, if the cache has room for a number of tokens. A model has its
    weights as soon as it is made.

    Args:
        config: A configuration of the class `config_class`.
        **kwargs: Keras's base model arguments.

    Call arguments:
        inputs: Dict of `encoder_token_ids` `(batch, source_length)`, the
            question, and `decoder_token_ids` `(batch, target_length)`, the
            answer, which starts with the start symbol. Both are padded at the
            end. Ids that are not in the vocabulary give NaN on JAX, as in
            `keras.layers.Embedding`.
        training: Whether to apply dropout.

    Returns:
        float32 logits `(batch, target_length, vocabulary_size)`: at every
        position those of the next token.

    Raises:
        UsageError: If `config` is of another class.

    Example:

    >>> model = SequenceToSequence.from_preset("tp_transformer_tiny")
    >>> type(model).__name__
    'Transformer'
    """

    # The cache's entries that `decode_step` changes.
    changing_caches: tuple[str, ...] = ()

    def __init__(self, config: SequenceToSequenceConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.supports_masking = True
        self.tokenizer = config.make_tokenizer()
        self._generator = Generator(self)

    def quantize(self, *args: Any, filters: Any = None, **kwargs: Any) -> None:
        """Quantizes every map; see `keras.Model.quantize`."""
        # Keras warns of each layer that it cannot quantize.
        super().quantize(*args, filters=filters or _is_map, **kwargs)

    def get_compile_config(self) -> dict[str, Any]:
        # Adapters are saved merged. The state of their optimizer fits no
        # model without them.
        layers = self._flatten_layers()
        if any(getattr(layer, "lora_enabled", False) for layer in layers):
            return {}
        return super().get_compile_config()

    def make_train_function(self, force: bool = False) -> Any:
        # An optimizer that makes its variables inside TensorFlow's graph has
        # the step traced twice, with a conditional for every variable.
        if self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    @classmethod
    def class_for(cls, config: Any) -> type[Self]:
        """Returns this class or its subclass that makes models of `config`."""
        classes = [cls]
        for each in classes:
            if each.takes(config):
                return each
            classes += each.__subclasses__()
        raise UsageError(
            f"{cls.__name__} makes no model of a {type(config).__name__} "
            f"(attention={getattr(config, 'attention', None)!r}). "
            "SequenceToSequence.from_preset makes any preset."
        )

    @classmethod
    def from_preset(
        cls,
        preset: StrPath,
        dtype: str | keras.DTypePolicy | None = None,
        load_weights: bool | None = None,
        **overrides: Any,
    ) -> Self:
        """Makes a new model of a variant, or loads a trained one.

        `SequenceToSequence.from_preset` makes any preset; the class of a model
        only its own.

        Args:
            preset: Name of a row in `PRESETS`, or what `load_model` takes.
            dtype: Dtype policy, for instance `"mixed_bfloat16"`. Defaults to
                that of the file, or else to Keras's global policy.
            load_weights: Whether to load trained weights. Defaults to `True`
                for a folder and for the trained presets, `TRAINED_PRESETS`.
            **overrides: Fields of the configuration to change. With trained
                weights, only `dropout`, `initialization`, `max_answer_length`
                and `max_question_length`, on which no weight depends.

        Returns:
            A model of this class.

        Raises:
            UsageError: If there is no such preset of this class, no weights or
                no such field, or a value is invalid.

        Example:

        ```python
        model = Transformer.from_preset("tp_transformer_mathematics")
        model.solve(["What is the tens digit of 31859?"])  # ['5']
        ```
        """
        if load_weights is None:
            load_weights = preset in TRAINED_PRESETS or preset not in PRESETS
        if load_weights:
            return load_changed(cls, preset, dtype, overrides)
        config = PRESETS.get(preset) or load_model(preset).config
        config = config.replace(**overrides)
        return cls.class_for(config)(config, dtype=dtype)

    def padding_mask(self, token_ids):
        """Boolean tensor like `token_ids`, true at real tokens."""
        return ops.not_equal(token_ids, self.tokenizer.pad_id)

    def compute_mask(self, inputs, previous_mask):
        # Nothing is to be predicted at padding and at the end symbol.
        token_ids = inputs["decoder_token_ids"]
        return ops.logical_and(
            self.padding_mask(token_ids),
            ops.not_equal(token_ids, self.tokenizer.end_id),
        )

    def compute_output_shape(self, input_shape):
        shape = input_shape["decoder_token_ids"]
        return (*shape, self.config.vocabulary_size)

    def encode(self, encoder_token_ids, training=None):
        """Encodes questions to a tensor or tensors `(batch, ...)`."""
        raise NotImplementedError

    def init_cache(self, encoder_token_ids, max_length):
        """Encodes questions, to decode `max_length` tokens of their answers.

        Returns a dict for `decode_step` of tensors `(batch, ...)`, nested in
        any way, so that rows can be repeated and dropped.
        """
        raise NotImplementedError

    def grow_cache(self, cache, max_length):
        """Returns a cache with room for more tokens, up to `max_length`."""
        return cache

    def decode_step(self, token_ids, cache, cache_update_index):
        """Computes the logits of the next token.

        Args:
            token_ids: The last tokens `(batch,)`.
            cache: The cache of `init_cache` or of the last step.
            cache_update_index: Position of `token_ids`, a scalar.

        Returns:
            float32 logits `(batch, vocabulary_size)`, and the cache with the
            `changing_caches` updated.
        """
        raise NotImplementedError

    def generate(self, encoder_token_ids, max_length=None):
        """Decodes answers greedily. A `Generator` has other ways.

        Args:
            encoder_token_ids: Integer tensor `(batch, source_length)`.
            max_length: Most tokens to decode. Defaults to
                `config.max_answer_length`.

        Returns:
            int32 tensor `(batch, max_length)`, padded behind the end symbol.

        Raises:
            UsageError: If a token id is not in the vocabulary.
        """
        refuse_strings(encoder_token_ids)
        check_token_ids(encoder_token_ids, self.config.vocabulary_size)
        generator = Generator(self, max_length=max_length)
        return generator.generate(encoder_token_ids)["token_ids"][:, 0]

    def solve(
        self, questions: Sequence[str], batch_size: int = 64
    ) -> list[str]:
        """Answers questions greedily.

        A question that cannot be answered (it is empty or too long, or has a
        character or word that is not in the vocabulary) gets an empty string,
        and one warning names all such questions. `Generator.answer` gives the
        status and the log-probability of each answer.

        Args:
            questions: List of strings.
            batch_size: Number of questions decoded together.

        Returns:
            List of as many strings.
        """
        return solve(self._generator, questions, batch_size)

    def export(self, filepath: StrPath, *args: Any, **kwargs: Any) -> None:
        """Exports the forward pass; see `keras.Model.export`.

        It takes int32 token ids of any batch size and lengths, and gives
        logits. `tpt_keras.serving.export.export` exports with strings in and
        out.
        """
        if kwargs.get("input_signature") is None:
            names = ("encoder_token_ids", "decoder_token_ids")
            specs = {
                x: keras.InputSpec("int32", (None, None), name=x) for x in names
            }
            kwargs["input_signature"] = [specs]
        super().export(filepath, *args, **kwargs)


def _is_map(layer):
    return isinstance(layer, keras.layers.EinsumDense)


def build_model(
    config: SequenceToSequenceConfig,
    dtype: str | keras.DTypePolicy | None = None,
) -> SequenceToSequence:
    """Builds a new model of a configuration.

    Args:
        config: A `SequenceToSequenceConfig`, such as a `TransformerConfig`.
        dtype: Dtype policy. Defaults to Keras's global policy.

    Returns:
        A `SequenceToSequence`, such as a `Transformer`.
    """
    return SequenceToSequence.class_for(config)(config, dtype=dtype)


def count_weights(config: SequenceToSequenceConfig) -> int:
    """Counts the weights of a configuration's model without allocating them.

    Example:

    >>> from tpt_keras.models import PRESETS
    >>> count_weights(PRESETS["transformer"].replace(vocabulary_size=73))
    44188160
    """
    # Initializers take seeds, which would change those of other models.
    random_state = random.getstate()
    # Keras lists variables without values in their thread, and would give them
    # values later.
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        model = thread.submit(_build_without_values, config).result()
    random.setstate(random_state)
    return model.count_params()


def _build_without_values(config):
    with keras.StatelessScope(initialize_variables=False):
        return build_model(config)
