import math
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from keras import ops

from tpt_keras.errors import check_choice
from tpt_keras.layers.base_layer import BaseLayer
from tpt_keras.layers.base_layer import Dropout
from tpt_keras.layers.base_layer import with_gradient
from tpt_keras.layers.projection import Projection

# Positions that an attention mechanism uses.
ATTENTION_POSITIONS = ("rotary",)
POSITIONS = ("sinusoidal", "none", *ATTENTION_POSITIONS)


@keras.saving.register_keras_serializable("tpt_keras")
class TokenAndPositionEmbedding(BaseLayer):
    """Embeds tokens at positions, binds them to a role, and gives logits.

    With `bind_embeddings`, the embedding is multiplied by a role, an affine map
    of it (section 4.1 of the paper and the released code):

        x = E[token] * sqrt(hidden_dim) + sinusoid(position)
        x = x * (W_p x + b_p + 1)

    Called with `reverse=True`, it is the model's tied output layer:
    `logits = hidden E^T` (equation 6), in float32.

    Args:
        vocabulary_size: Number of tokens in the vocabulary.
        hidden_dim: Size of the embedding (the paper's d_z).
        bind_embeddings: Whether to bind embeddings. Defaults to `True`.
        embeddings_initializer: Initializer of E and W_p. Defaults to a normal
            distribution with a standard deviation of `1 / sqrt(hidden_dim)`.
        bias_initializer: Initializer of b_p.
        dropout: Dropout rate of the output. Defaults to `0.0`.
        seed: Seed of the dropout.
        mask_zero: Whether id 0 is padding. The output then carries a Keras
            mask, as that of `keras.layers.Embedding` does, and logits carry
            the mask of their hidden states. Defaults to `False`.
        positions: `"sinusoidal"` (default). `"none"` and `"rotary"`
            add nothing: the attention mechanism uses positions itself.
        **kwargs: Keras's base layer arguments.

    Call arguments:
        inputs: Token ids `(batch, length)` of an integer or float dtype, or
            with `reverse=True` hidden states `(batch, length, hidden_dim)`.
            As in `keras.layers.Embedding`, an id beyond the vocabulary is an
            error on TensorFlow's CPU and on PyTorch, and gives NaN on JAX.
        start_index: Position of the first token, an integer or a scalar
            tensor. Defaults to `0`.
        added: Tensor `(batch, length, hidden_dim)` to add to the sum, such as
            that of a `DigitPlaceEmbedding`. Defaults to none.
        reverse: Whether to map hidden states to logits.
        training: Whether to apply dropout.

    Returns:
        Tensor `(batch, length, hidden_dim)`, or with `reverse=True` logits
        `(batch, length, vocabulary_size)`.

    Example:

    >>> embedding = TokenAndPositionEmbedding(vocabulary_size=72, hidden_dim=8)
    >>> hidden = embedding(keras.ops.array([[1, 5, 6, 2]]))
    >>> hidden.shape
    (1, 4, 8)
    >>> embedding(hidden, reverse=True).shape
    (1, 4, 72)
    """

    traced_arguments = ("reverse",)

    def __init__(
        self,
        vocabulary_size: int,
        hidden_dim: int,
        bind_embeddings: bool = True,
        embeddings_initializer: str | keras.Initializer | None = None,
        bias_initializer: str | keras.Initializer = "zeros",
        dropout: float = 0.0,
        seed: int | None = None,
        mask_zero: bool = False,
        positions: str = "sinusoidal",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if embeddings_initializer is None:
            embeddings_initializer = keras.initializers.RandomNormal(
                stddev=1.0 / math.sqrt(hidden_dim)
            )
        self.vocabulary_size = vocabulary_size
        self.hidden_dim = hidden_dim
        self.bind_embeddings = bind_embeddings
        check_choice("positions", positions, POSITIONS)
        self.positions = positions
        self.embeddings_initializer = keras.initializers.get(
            embeddings_initializer
        )
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.dropout = dropout
        self.seed = seed
        self.mask_zero = mask_zero
        self.supports_masking = mask_zero
        # `keras.Input` makes float ids, which bfloat16 would round.
        self.autocast = False

    def build(self, input_shape=None):
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.vocabulary_size, self.hidden_dim),
            initializer=self.embeddings_initializer,
            # Sums the gradients of both uses before they are rounded.
            autocast=False,
        )
        self.role_dense = None
        if self.bind_embeddings:
            self.role_dense = Projection(
                self.hidden_dim,
                kernel_initializer=self.embeddings_initializer,
                bias_initializer=self.bias_initializer,
                dtype=self.dtype_policy,
                name="role",
            )
            self.role_dense.build((None, None, self.hidden_dim))
        self.dropout_layer = Dropout(
            self.dropout, seed=self.seed, dtype=self.dtype_policy
        )
        self.built = True

    def call(
        self, inputs, start_index=0, added=None, reverse=False, training=None
    ):
        if reverse:
            return self._logits(inputs)
        # TensorFlow's custom gradient takes tensors, but not variables. The
        # ids are an argument because JAX may trace them.
        x = _look_up(ops.copy(self.embeddings), ops.cast(inputs, "int32"))
        x = ops.cast(x, self.compute_dtype) * math.sqrt(self.hidden_dim)
        if self.positions == "sinusoidal":
            positions = ops.arange(ops.shape(inputs)[-1], dtype="int32")
            sinusoids = position_sinusoids(
                positions + start_index, self.hidden_dim
            )
            x = ops.add(x, ops.cast(sinusoids, self.compute_dtype))
        if added is not None:
            x = ops.add(x, ops.cast(added, self.compute_dtype))
        if self.role_dense is not None:
            x = ops.multiply(x, ops.add(self.role_dense(x), 1.0))
        return self.dropout_layer(x, training=training)

    def _logits(self, hidden):
        hidden = ops.cast(hidden, self.compute_dtype)
        flat = ops.reshape(hidden, (-1, self.hidden_dim))
        matrix = ops.cast(self.embeddings, self.compute_dtype)
        logits = ops.cast(ops.matmul(flat, ops.transpose(matrix)), "float32")
        shape = (*ops.shape(hidden)[:-1], self.vocabulary_size)
        return ops.reshape(logits, shape)

    def compute_mask(self, inputs, mask=None):
        if not self.mask_zero:
            return None
        has_hidden_states = len(inputs.shape) > 2
        return mask if has_hidden_states else ops.not_equal(inputs, 0)

    def compute_output_shape(self, input_shape):
        if len(input_shape) > 2:  # hidden states
            return (*input_shape[:-1], self.vocabulary_size)
        return (*input_shape, self.hidden_dim)


@keras.saving.register_keras_serializable("tpt_keras")
class DigitPlaceEmbedding(BaseLayer):
    """Embeds the place of a digit in its number: units, tens, hundreds.

    Before a decimal point, a place counts the digits from this one to the last
    of its run, this one included: 1 for units. With `units_first=True`, it
    counts them from the first, so that a digit has the same place in both
    orders. After a point, a place counts from the point, in the second half of
    the table. A token that is no digit gets zeros. The table is zero at first,
    so that a place that was never seen changes nothing.

    Args:
        digit_ids: Token ids of the digits.
        hidden_dim: Size of the embedding.
        point_id: Token id of the decimal point. Defaults to none.
        max_places: Number of places before the point, and after it. Places
            further from the point share the vector of the place `max_places`.
            Defaults to `32`.
        **kwargs: Keras's base layer arguments.

    Call arguments:
        inputs: Token ids `(batch, length)` of an integer or float dtype.
        units_first: Whether digits before a point are written units first.

    Returns:
        Tensor `(batch, length, hidden_dim)`.

    Example:

    >>> layer = DigitPlaceEmbedding([4, 5], hidden_dim=8, point_id=7)
    >>> ids = keras.ops.array([[9, 4, 5, 5, 7, 4, 5]])
    >>> keras.ops.convert_to_numpy(layer.places(ids)).tolist()
    [[0, 3, 2, 1, 0, 33, 34]]
    >>> layer(ids).shape
    (1, 7, 8)
    """

    def __init__(
        self,
        digit_ids: Iterable[int],
        hidden_dim: int,
        point_id: int = -1,
        max_places: int = 32,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.digit_ids = tuple(digit_ids)
        self.hidden_dim = hidden_dim
        self.point_id = point_id
        self.max_places = max_places
        # `keras.Input` makes float ids, which bfloat16 would round.
        self.autocast = False

    def build(self, input_shape=None):
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(2 * self.max_places, self.hidden_dim),
            initializer="zeros",
            autocast=False,
        )
        self.built = True

    def places(self, token_ids, units_first=False):
        """Returns the places `(batch, length)`: 1 for units, 0 for no digit."""
        ids = ops.cast(token_ids, "int32")
        is_digit = self._is_digit(ids)
        is_point = ops.equal(ids, self.point_id)
        from_first = self._count_from_first(is_digit)
        whole = from_first if units_first else self._count(is_digit)
        # A run that starts after a point is longer with the point.
        follow_point = self._count_from_first(is_digit | is_point) > from_first
        is_fraction = is_digit & follow_point & (from_first <= self.max_places)
        return ops.where(
            is_fraction,
            self.max_places + from_first,
            ops.minimum(whole, self.max_places),
        )

    def _is_digit(self, ids):
        digit_ids = ops.convert_to_tensor(self.digit_ids, "int32")
        return ops.any(ops.equal(ops.expand_dims(ids, -1), digit_ids), -1)

    def _count(self, is_digit):
        """Counts the digits from each to the last of its run.

        Counts are right at least up to one more than `max_places`.
        """
        counts = ops.cast(is_digit, "int32")
        # Counts up to `width` digits, and doubles it.
        width = 1
        while width <= self.max_places:
            following = ops.pad(counts, ((0, 0), (0, width)))[:, width:]
            counts = counts + ops.where(ops.equal(counts, width), following, 0)
            width *= 2
        return counts

    def _count_from_first(self, is_digit):
        return ops.flip(self._count(ops.flip(is_digit, 1)), 1)

    def call(self, inputs, units_first=False):
        return self._embed(self.places(inputs, units_first))

    def _embed(self, places):
        x = _look_up(ops.copy(self.embeddings), ops.maximum(places - 1, 0))
        is_digit = ops.expand_dims(ops.greater(places, 0), -1)
        x = ops.where(is_digit, x, 0.0) * math.sqrt(self.hidden_dim)
        return ops.cast(x, self.compute_dtype)

    def embed_step(self, token_ids, next_place):
        """Embeds the places of the next tokens `(batch, 1)`, units first.

        `next_place`, int32 `(batch,)`, is the place of each token if it is a
        digit: ones before the first step. Returns a tensor `(batch, 1,
        hidden_dim)` and the `next_place` of the next step.
        """
        ids = ops.cast(token_ids, "int32")[:, 0]
        is_digit = self._is_digit(ids)
        is_last = ops.equal(next_place % self.max_places, 0)
        after_digit = ops.where(is_last, self.max_places, next_place + 1)
        is_point = ops.equal(ids, self.point_id)
        after_others = ops.where(is_point, self.max_places + 1, 1)
        places = ops.where(is_digit, next_place, 0)
        x = self._embed(ops.expand_dims(places, -1))
        next_place = ops.where(is_digit, after_digit, after_others)
        return x, ops.cast(next_place, "int32")

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.hidden_dim)


# The largest vocabulary whose gradient is a product with one-hot vectors.
_MOST_ONE_HOT = 1024


def _take_rows_gradient(upstream, matrix, token_ids):
    """The gradient of a lookup, of a small vocabulary by one-hot vectors.

    The usual gradient adds one row for each token. With few different rows,
    the additions wait for one another: on a GPU they took most of a training
    step. With many rows the product would take much memory.
    """
    vocabulary_size, hidden_dim = matrix.shape
    token_ids = ops.reshape(token_ids, (-1,))
    upstream = ops.reshape(upstream, (-1, hidden_dim))
    if vocabulary_size > _MOST_ONE_HOT:
        # A sum of many rows in half precision would stop growing.
        rows = ops.cast(upstream, "float32")
        matrix_gradient = ops.segment_sum(rows, token_ids, vocabulary_size)
        matrix_gradient = ops.cast(matrix_gradient, upstream.dtype)
    else:
        one_hot = ops.one_hot(token_ids, vocabulary_size, dtype=upstream.dtype)
        matrix_gradient = ops.matmul(ops.transpose(one_hot), upstream)
    return matrix_gradient, None  # Token ids have no gradient.


_look_up = with_gradient(
    lambda matrix, token_ids: ops.take(matrix, token_ids, axis=0),
    _take_rows_gradient,
)


def position_sinusoids(positions, hidden_dim):
    """Sinusoids of positions: sine in even columns, cosine in odd ones.

    Column `2i` has the frequency `exp(-log(10000) * 2i / hidden_dim)`, as in
    the released code. tensor2tensor and keras-hub have another order. Maps
    `(length,)` to float32 `(length, hidden_dim)`.
    """
    angles = position_angles(positions, hidden_dim)
    is_even = np.arange(hidden_dim) % 2 == 0
    return ops.where(is_even, ops.sin(angles), ops.cos(angles))


def position_angles(positions, hidden_dim):
    """Maps positions `(length,)` to float32 `(length, hidden_dim)`.

    Columns `2i` and `2i + 1` are `position * exp(-log(10000) * 2i / dim)`.
    """
    even = np.arange(hidden_dim, dtype="float32") // 2 * 2
    frequencies = np.exp(even * np.float32(-math.log(10000.0) / hidden_dim))
    positions = ops.expand_dims(ops.cast(positions, "float32"), -1)
    return ops.multiply(positions, frequencies)
