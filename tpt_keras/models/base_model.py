"""The base classes of models: their losses, and strings as their inputs."""

import dataclasses
import inspect
import types
from collections.abc import Sequence
from typing import Any
from typing import Self

import keras
import numpy as np
from keras import ops

from tpt_keras.answer import list_of_texts
from tpt_keras.errors import UsageError
from tpt_keras.layers import dtype_config
from tpt_keras.layers.base_layer import Rematerialized
from tpt_keras.models.metrics import Masked
from tpt_keras.models.metrics import SequenceAccuracy
from tpt_keras.models.metrics import TokenAccuracy
from tpt_keras.models.metrics import TokenMean
from tpt_keras.models.metrics import token_weights

# Keras's short names of cross-entropies.
_SHORT_NAMES = ("bce", "ce")
# Lengths are padded to multiples, so that there are few shapes to compile.
_LENGTH_STEP = 16


class LogitsModel(Rematerialized, keras.Model):
    """Base class of models whose outputs are logits."""

    # The class of the configurations. A class without one is abstract.
    config_class: Any = ()

    def __init__(self, config: Any, **kwargs: Any) -> None:
        if not self.takes(config):
            raise UsageError(
                f"A {type(self).__name__} cannot be made of {config!r}. Use "
                "from_preset for a preset's name, or another class.",
                field="config",
            )
        super().__init__(**kwargs)
        # Token ids may be floats, as those of `keras.Input`. Half precision
        # would round them.
        self.autocast = False
        self.config = config

    @classmethod
    def takes(cls, config: Any) -> bool:
        """Returns `True` if this class makes models of `config`."""
        return isinstance(config, cls.config_class)

    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = "auto",
        loss_weights: Any = None,
        metrics: Any = None,
        weighted_metrics: Any = None,
        **kwargs: Any,
    ) -> None:
        """Configures the model for training; see `keras.Model.compile`.

        Args:
            optimizer: The optimizer, or its name.
            loss: The loss, of logits. Defaults to `"auto"`: the cross-entropy,
                divided by the sum of the tokens' weights, which is what Keras
                calls `reduction="mean_with_sample_weight"`. With Keras's own
                default it is divided by the number of tokens.
            loss_weights: See Keras.
            metrics: Without these and `weighted_metrics`, a model of questions
                and answers has `sequence_accuracy` and `token_accuracy` beside
                a sparse cross-entropy.
            weighted_metrics: See Keras.
            **kwargs: Keras's other arguments.

        Raises:
            UsageError: If the loss or a metric takes probabilities.
        """
        if isinstance(loss, str) and loss == "auto":
            loss = keras.losses.SparseCategoricalCrossentropy(
                from_logits=True, reduction="mean_with_sample_weight"
            )
        for field, given in (
            ("loss", loss),
            ("metrics", metrics),
            ("weighted_metrics", weighted_metrics),
        ):
            for each in keras.tree.flatten(given):
                _refuse_probabilities(each, field)
        # Other losses may have other targets than token ids.
        is_sparse = isinstance(loss, keras.losses.SparseCategoricalCrossentropy)
        if is_sparse and metrics is None and weighted_metrics is None:
            weighted_metrics = self._default_metrics()
        super().compile(
            optimizer, loss, loss_weights, metrics, weighted_metrics, **kwargs
        )
        # In place of Keras's, which is no tracked attribute either.
        object.__setattr__(self, "_loss_tracker", TokenMean("loss"))

    def _default_metrics(self):
        return None

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        if x is not None:  # else Keras reads the mask of the outputs
            y_pred, _, sample_weight = self._masked(x, y_pred, sample_weight)
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        y_pred, mask, weights = self._masked(x, y_pred, sample_weight)
        # What Keras divided the sum of the losses by.
        (loss,) = keras.tree.flatten(self.loss) or (None,)
        divisors = {
            "mean": mask,
            "sum_over_batch_size": mask,
            "mean_with_sample_weight": weights,
        }
        divisor = divisors.get(getattr(loss, "reduction", "mean"))
        self._loss_tracker.add_batch(
            None if divisor is None else ops.sum(ops.cast(divisor, "float32"))
        )
        return super().compute_metrics(x, y, y_pred, weights)

    def _masked(self, x, y_pred, sample_weight):
        """Returns logits with their mask, the mask, and the tokens' weights.

        Keras's step on JAX calls `call` alone, and takes the gradient of it:
        both lose the mask.
        """
        mask = self.compute_mask(x, None)
        if mask is None:
            mask = ops.ones_like(y_pred[..., 0], dtype="bool")
        y_pred = Masked()((y_pred, mask))
        return y_pred, mask, token_weights(mask, sample_weight)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        # Keras's own leaves a model with a `compile` of its own uncompiled.
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "config": dataclasses.asdict(self.config),
            "dtype": dtype_config(self),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        config = dict(config)
        config["config"] = cls.config_class(**config["config"])
        return cls(**config)


def _refuse_probabilities(loss, field):
    if isinstance(loss, str):
        name = loss.lower()
        # A name means Keras's defaults.
        from_logits = not (
            name.endswith("crossentropy") or name in _SHORT_NAMES
        )
    elif hasattr(loss, "from_logits"):
        from_logits = loss.from_logits
    else:
        parameters = inspect.signature(loss).parameters if loss else {}
        default = parameters.get("from_logits")
        from_logits = default is None or default.default
    if not from_logits:
        name = getattr(loss, "name", None) or getattr(loss, "__name__", loss)
        raise UsageError(
            f"The model's outputs are logits, and {name!r} takes "
            "probabilities. Give an object that was made with "
            "from_logits=True; `loss` may also be left out.",
            field=field,
        )


class StringsModel(LogitsModel):
    """Base class of models that train on questions and answers.

    A subclass has a `tokenizer`, and a `config` with `max_question_length` and
    `max_answer_length`.
    """

    tokenizer: Any

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        refuse_strings(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def _default_metrics(self):
        return [
            SequenceAccuracy("sequence_accuracy"),
            TokenAccuracy("token_accuracy"),
        ]

    def preprocess(
        self, x: Any, y: Any = None, sample_weight: Any = None
    ) -> tuple[Any, Any, Any]:
        """Encodes questions and answers, for `fit` and `evaluate`.

        They are padded to `max_question_length` and `max_answer_length`, so
        that all batches have the same shapes.

        Args:
            x: List of questions. What has no strings is returned as it is.
            y: List of answers.
            sample_weight: A number for each question, or `None`.

        Returns:
            Dict of token ids, the token ids of the targets, and the weights of
            the targets: 0 for padding.

        Raises:
            UsageError: If a string cannot be encoded, or some inputs are
                strings and others are not.

        Example:

        >>> model = SequenceToSequence.from_preset("tp_transformer_tiny")
        >>> x, y, weights = model.preprocess(["1+1", "2+5"], ["2", "7"])
        >>> y.shape
        (2, 31)
        """
        return _encoded(self, x, y, sample_weight, is_trimmed=False)

    def fit(
        self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any
    ) -> keras.callbacks.History:
        """Trains the model; see `keras.Model.fit`.

        It also takes lists or arrays of questions (`x`) and of answers (`y`),
        which the tokenizer encodes, or a generator of batches of both. A
        `PyDataset` returns `model.preprocess(questions, answers)`. A
        `sample_weight` has a number for each question. Padding counts neither
        in the loss nor in metrics. The loss of an epoch is the mean over its
        tokens, whatever the batch size.

        Example:

        >>> model = SequenceToSequence.from_preset(
        ...     "tp_transformer_tiny", num_layers=1
        ... )
        >>> model.compile("adam")
        >>> history = model.fit(["1+1", "2+5"], ["2", "7"], verbose=0)
        """
        return _call_encoded(self, super().fit, x, y, *args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluates the model. See `fit` and `keras.Model.evaluate`."""
        return _call_encoded(self, super().evaluate, *args, **kwargs)

    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Trains on a batch. See `fit` and `keras.Model.train_on_batch`."""
        return _call_encoded(self, super().train_on_batch, *args, **kwargs)

    def test_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluates a batch. See `fit` and `keras.Model.test_on_batch`."""
        return _call_encoded(self, super().test_on_batch, *args, **kwargs)

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> np.ndarray:
        """Computes logits of token ids. See `keras.Model.predict`."""
        refuse_strings(x)
        return super().predict(x, *args, **kwargs)


def refuse_strings(inputs: Any) -> None:
    """Raises a `UsageError` if there are strings in place of token ids."""
    if any(map(_has_strings, keras.tree.flatten(inputs))):
        raise UsageError(
            "Received strings where token ids are expected. Answer questions "
            "with `solve`. `fit` and `evaluate` take a list of questions and "
            "one of answers: fit(*zip(*pairs)) of pairs, which a dataset of "
            "TensorFlow has in dataset.unbatch().as_numpy_iterator(). A "
            "PyDataset returns model.preprocess(questions, answers)."
        )


def _call_encoded(model, method, *args, **kwargs):
    """Calls a method of Keras, such as `fit`, with strings encoded."""
    bound = inspect.signature(method).bind(*args, **kwargs)
    arguments = bound.arguments
    if arguments.get("class_weight") is not None:
        raise UsageError(
            "The classes of `class_weight` would be tokens. Give a "
            "`sample_weight`, which has a number for each question.",
            field="class_weight",
        )
    names = ("x", "y", "sample_weight")
    data = _encoded(model, *map(arguments.get, names))
    arguments.update(zip(names, data))
    validation = arguments.get("validation_data")
    if validation is not None:
        if not isinstance(validation, (tuple, list)):
            validation = (validation,)
        arguments["validation_data"] = _encoded(model, *validation)
    return method(*bound.args, **bound.kwargs)


def _encoded(model, x, y=None, sample_weight=None, is_trimmed=True):
    """Encodes strings as `preprocess`, and a generator batch by batch.

    Trimmed token ids are no longer than the longest string needs.
    """
    if isinstance(x, types.GeneratorType):
        return _encoded_batches(model, x), y, sample_weight
    are_batches = isinstance(x, keras.utils.PyDataset) or _is_dataset(x)
    if are_batches or not _has_strings(x) or y is None:
        refuse_strings((x, y))
        return x, y, sample_weight
    tokenizer, config = model.tokenizer, model.config
    x, y = list_of_texts(x, "x"), list_of_texts(y, "y")
    if not x or len(x) != len(y):
        raise UsageError(
            f"There are {len(x)} questions and {len(y)} answers.", field="y"
        )
    longest = max(len(tokenizer.pieces(answer)) for answer in y)
    if longest > config.max_answer_length:
        raise UsageError(
            f"An answer has {longest} {tokenizer.unit}, and the model's "
            f"`max_answer_length` is {config.max_answer_length}.",
            field="max_answer_length",
        )
    questions = tokenizer.encode_questions(x, config.max_question_length)
    answers = tokenizer.encode_batch(y)

    def padded(token_ids, limit):
        length = token_ids.shape[1]
        if is_trimmed:
            limit = min(length + -length % _LENGTH_STEP, limit)
        more = ((0, 0), (0, limit - length))
        return np.pad(token_ids, more, constant_values=tokenizer.pad_id)

    # The start and the end of a question, and one of both of an answer.
    limits = config.max_question_length + 2, config.max_answer_length + 1
    inputs = {
        "encoder_token_ids": padded(questions, limits[0]),
        "decoder_token_ids": padded(answers[:, :-1], limits[1]),
    }
    targets = padded(answers[:, 1:], limits[1])
    weights = (targets != tokenizer.pad_id).astype("float32")
    if sample_weight is not None:
        sample_weight = np.asarray(sample_weight, "float32")
        if sample_weight.size != len(x) or not np.isfinite(sample_weight).all():
            raise UsageError(
                "`sample_weight` must have a finite number for each of "
                f"{len(x)} questions. Received: {sample_weight}",
                field="sample_weight",
            )
        weights *= sample_weight.reshape(-1, 1)
    return inputs, targets, weights


def _encoded_batches(model, batches):
    for batch in batches:
        if isinstance(batch, tuple):
            batch = keras.utils.pack_x_y_sample_weight(
                *model.preprocess(*batch)
            )
        yield batch


def _is_dataset(x):
    """Returns `True` for a dataset of TensorFlow."""
    return hasattr(x, "element_spec")


def _has_strings(x):
    if _is_dataset(x):
        return any(map(_has_strings, keras.tree.flatten(x.element_spec)))
    if isinstance(x, keras.utils.PyDataset):
        return any(map(_has_strings, keras.tree.flatten(x[0])))
    if isinstance(x, (str, bytes)):
        return True
    if isinstance(x, Sequence):
        return not x or _has_strings(x[0])
    dtype = getattr(x, "dtype", None)
    if dtype is None and hasattr(x, "__array__"):  # a table
        dtype = np.asarray(x).dtype
    is_text = getattr(dtype, "kind", "") in ("O", "S", "T", "U")
    return is_text or "string" in str(dtype).lower()
