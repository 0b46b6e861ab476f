"""Mechanisms that use the distance from a query to a key."""

from typing import Any

import keras
from keras import ops

from tpt_keras.errors import check_positive_integer
from tpt_keras.layers.base_layer import BaseLayer
from tpt_keras.layers.base_layer import with_gradient
from tpt_keras.layers.mechanisms.dot_product_attention import (
    DotProductAttention,
)
from tpt_keras.layers.token_and_position_embedding import position_sinusoids


@keras.saving.register_keras_serializable("tpt_keras")
class RelativeAttention(DotProductAttention):
    """Dot products with relative positions (Shaw et al., 2018).

    A learned vector of the distance `j - i`, shared by the heads, is added to
    each key and another one to each value (equations 3 and 4 there):

        weights_ij = softmax_j(q_i (k_j + a^K_clip(j - i)) / sqrt(key_dim))
        filler_i = sum_j weights_ij (v_j + a^V_clip(j - i))

    No tensor of the size `(length, length, key_dim)` is made: one product
    matches the queries with all distances, and its rows are shifted.

    Args:
        max_distance: Distances beyond this one count as this one (the paper's
            k). Defaults to `16`.
        **kwargs: See `AttentionMechanism`.

    The call arguments are those of `AttentionMechanism`.

    Example:

    >>> mechanism = RelativeAttention(max_distance=4)
    >>> heads = keras.random.normal((3, 10, 2, 8))
    >>> filler, weights = mechanism(heads, heads, heads)
    >>> filler.shape, weights.shape
    ((3, 10, 2, 8), (3, 2, 10, 10))
    """

    needs_positions = True
    takes_positions = False

    def __init__(self, max_distance: int = 16, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive_integer("max_distance", max_distance)
        self.max_distance = max_distance

    def build(self, query_heads_shape, key_heads_shape, value_heads_shape):
        super().build(query_heads_shape, key_heads_shape, value_heads_shape)
        self.key_table, self.value_table = (
            self.add_weight(
                name=name,
                shape=(2 * self.max_distance + 1, size),
                initializer="glorot_uniform",
            )
            for name, size in (
                ("key_table", self.key_dim),
                ("value_table", self.value_dim),
            )
        )

    def logits(self, query_heads, keys, start_index):
        logits = super().logits(query_heads, keys, start_index)
        lengths = ops.shape(logits)[2:]
        vectors = self._distance_vectors(self.key_table, lengths, start_index)
        queries = ops.multiply(query_heads, self.key_dim**-0.5)
        of_distances = ops.einsum("bthd,wd->bhtw", queries, vectors)
        return logits + distances_to_keys(of_distances, lengths[1])

    def retrieve(self, weights, values, start_index):
        vectors = self._distance_vectors(
            self.value_table, ops.shape(weights)[2:], start_index
        )
        of_distances = keys_to_distances(weights, ops.shape(vectors)[0])
        return super().retrieve(weights, values, start_index) + ops.einsum(
            "bhtw,wd->bthd", of_distances, vectors
        )

    def _distance_vectors(self, table, lengths, start_index):
        """Rows of a table, `(target_length + source_length, dim)`."""
        rows = clipped_distances(lengths, start_index, self.max_distance)
        # Keras casts call arguments, but not weights.
        table = ops.convert_to_tensor(table, self.compute_dtype)
        return ops.take(table, rows, axis=0)


@keras.saving.register_keras_serializable("tpt_keras")
class TransformerXLAttention(DotProductAttention):
    """The relative attention of Transformer-XL (Dai et al., 2019).

    A key is matched by its content and by its distance, each with a bias in
    place of the query's position (section 3.3 there):

        weights_ij = softmax_j(
            ((q_i + u) k_j + (q_i + v) (W_R R_(i-j))) / sqrt(key_dim))
        filler_i = sum_j weights_ij v_j

    `R` is the sinusoid of a distance, also of keys after the query. As in the
    released code, `W_R` has no bias.

    Args:
        biases: The `QueryBiases` `u` and `v`. By default each mechanism has
            its own. To share them, as the paper's language models do, give the
            same layer to several mechanisms. Keras can load such a model if its
            class makes the layers, but no functional model, and none with a
            wrapper such as `TimeDistributed`.
        **kwargs: See `AttentionMechanism`.

    The call arguments are those of `AttentionMechanism`.

    Example:

    >>> mechanism = TransformerXLAttention()
    >>> heads = keras.random.normal((3, 10, 2, 8))
    >>> filler, weights = mechanism(heads, heads, heads)
    >>> filler.shape, weights.shape
    ((3, 10, 2, 8), (3, 2, 10, 10))
    """

    needs_positions = True
    takes_positions = False

    def __init__(
        self, biases: "QueryBiases | None" = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if isinstance(biases, dict):
            biases = keras.saving.deserialize_keras_object(biases)
        self._shares_biases = biases is not None
        self.biases = biases or QueryBiases(
            dtype=self.dtype_policy, name="biases"
        )

    def build(self, query_heads_shape, key_heads_shape, value_heads_shape):
        super().build(query_heads_shape, key_heads_shape, value_heads_shape)
        if not self.biases.built:
            self.biases.build(query_heads_shape)
        width = self.num_heads * self.key_dim
        self.position_kernel = self.add_weight(
            name="position_kernel",
            shape=(width, width),
            initializer="glorot_uniform",
        )

    def logits(self, query_heads, keys, start_index):
        for_contents, for_distances = self.biases(query_heads)
        source_length = ops.shape(keys)[2]
        lengths = ops.shape(query_heads)[1], source_length
        vectors = self._distance_vectors(lengths, start_index)
        # `ops.einsum` would transpose the product, which is larger than the
        # queries.
        of_distances = ops.matmul(
            ops.transpose(for_distances * self.key_dim**-0.5, (0, 2, 1, 3)),
            ops.transpose(vectors, (1, 2, 0)),
        )  # (batch, num_heads, target_length, target_length + source_length)
        of_contents = super().logits(for_contents, keys, start_index)
        return of_contents + distances_to_keys(of_distances, source_length)

    def _distance_vectors(self, lengths, start_index):
        """`(target_length + source_length, num_heads, key_dim)`."""
        # Keras casts call arguments, but not weights.
        kernel = ops.convert_to_tensor(self.position_kernel, self.compute_dtype)
        distances = all_distances(*lengths, start_index)
        sinusoids = position_sinusoids(-distances, kernel.shape[0])
        vectors = ops.matmul(ops.cast(sinusoids, self.compute_dtype), kernel)
        return ops.reshape(vectors, (-1, self.num_heads, self.key_dim))

    def get_config(self) -> dict[str, Any]:
        biases = None
        if self._shares_biases:
            biases = keras.saving.serialize_keras_object(self.biases)
        return {**super().get_config(), "biases": biases}


@keras.saving.register_keras_serializable("tpt_keras")
class QueryBiases(BaseLayer):
    """The biases of queries in Transformer-XL: `q + u` and `q + v`.

    As in the released code, they start from a normal distribution with a
    standard deviation of 0.02. The arguments are Keras's base layer arguments.

    Call arguments:
        query_heads: Tensor `(batch, target_length, num_heads, key_dim)`.

    Returns:
        Two tensors of the same shape: the queries that meet the contents and
        those that meet the distances.
    """

    def build(self, query_heads_shape):
        self.content_bias, self.position_bias = (
            self.add_weight(
                name=name,
                shape=query_heads_shape[-2:],
                initializer=keras.initializers.RandomNormal(stddev=0.02),
            )
            for name in ("content_bias", "position_bias")
        )
        self.built = True

    def call(self, query_heads):
        return tuple(
            query_heads + ops.convert_to_tensor(bias, query_heads.dtype)
            for bias in (self.content_bias, self.position_bias)
        )


# A row with a value for each distance holds those of all keys, shifted by one
# from row to row. With one unused distance, before or after the others, a
# reshape shifts them without a gather. Each direction is the gradient of the
# other: TensorFlow's own gradient of a slice is a pad, which took three
# quarters of the time on a CPU.


def all_distances(target_length, source_length, start_index=0):
    """All positions of keys minus positions of queries, ascending."""
    before = target_length
    if isinstance(target_length, int) and target_length > 0:
        # The unused distance is the last one, which is faster on JAX. For a
        # length that may be 0 it is the first one, or a size would be negative.
        before = target_length - 1
    columns = ops.arange(before + source_length + 1, dtype="int32")
    return columns - before - start_index


def clipped_distances(lengths, start_index, max_distance):
    """The rows of all distances in a table of `2 * max_distance + 1`."""
    distances = all_distances(*lengths, start_index)
    return ops.clip(distances, -max_distance, max_distance) + max_distance


def distances_to_keys(values, source_length):
    """Rearranges values of distances, the last axis, to values of keys."""
    num_distances = ops.shape(values)[3]
    shift = with_gradient(
        lambda values: _shift_to_keys(values, source_length),
        lambda upstream, values: keys_to_distances(upstream, num_distances),
    )
    return shift(values)


def keys_to_distances(values, num_distances):
    """The inverse of `distances_to_keys`; distances without a key get zeros."""
    source_length = ops.shape(values)[3]
    shift = with_gradient(
        lambda values: _shift_to_distances(values, num_distances),
        lambda upstream, values: distances_to_keys(upstream, source_length),
    )
    return shift(values)


def _shift_to_keys(values, source_length):
    batch_size, num_heads, target_length, width = ops.shape(values)
    flat = ops.reshape(values, (batch_size, num_heads, target_length * width))
    # From the start of a row, the first key of the next row is width - 1 away.
    before, size = width - source_length - 1, target_length * (width - 1)
    shifted = ops.reshape(
        flat[:, :, before : before + size],
        (batch_size, num_heads, target_length, width - 1),
    )
    return shifted[:, :, :, :source_length]


def _shift_to_distances(values, width):
    batch_size, num_heads, target_length, source_length = ops.shape(values)

    def zeros(*shape):
        return ops.zeros((batch_size, num_heads, *shape), values.dtype)

    # `ops.pad` is several times as slow on TensorFlow's CPU.
    before = width - source_length - 1
    shifted = ops.concatenate([values, zeros(target_length, before)], axis=-1)
    flat = ops.reshape(
        shifted, (batch_size, num_heads, target_length * (width - 1))
    )
    flat = ops.concatenate(
        [zeros(before), flat, zeros(target_length - before)], axis=-1
    )
    return ops.reshape(flat, (batch_size, num_heads, target_length, width))
