import keras
from keras import ops

from tpt_keras.layers.mechanisms.distances import all_distances
from tpt_keras.layers.mechanisms.distances import distances_to_keys
from tpt_keras.layers.mechanisms.distances import keys_to_distances
from tpt_keras.layers.mechanisms.dot_product_attention import (
    DotProductAttention,
)


@keras.saving.register_keras_serializable("tpt_keras")
class RelativeAttention(DotProductAttention):
    """Dot products that know how far a key stands (Shaw et al., 2018).

    A learned vector of the distance `j - i`, the same for all heads, is added
    to the key, and another one to the value (equations 3 and 4 there):

        weights_ij = softmax_j(q_i (k_j + a^K_clip(j - i)) / sqrt(key_dim))
        filler_i = sum_j weights_ij (v_j + a^V_clip(j - i))

    Nothing of the size `(length, length, key_dim)` is made: queries meet the
    vectors of all distances in one product, whose rows are then shifted.

    Args:
        max_distance: Distances beyond this one count as this one (the paper's
            k). Defaults to `16`.
        **kwargs: See `AttentionMechanism`.

    The call arguments are those of `AttentionMechanism`.

    Example:

    >>> mechanism = RelativeAttention(max_distance=4)
    >>> heads = keras.random.normal((3, 10, 2, 8))
    >>> mechanism.build(heads.shape, heads.shape, heads.shape)
    >>> filler, weights = mechanism(heads, heads, heads)
    >>> filler.shape, weights.shape
    ((3, 10, 2, 8), (3, 2, 10, 10))
    """

    needs_positions = True

    def __init__(self, max_distance=16, **kwargs):
        super().__init__(**kwargs)
        if not isinstance(max_distance, int) or max_distance <= 0:
            raise ValueError(
                "`max_distance` must be a positive integer. Received: "
                f"{max_distance!r}"
            )
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
        target_length, source_length = ops.shape(logits)[2:]
        vectors = self._of_all_distances(
            self.key_table, target_length, source_length, start_index
        )
        of_distances = ops.einsum(
            "bthd,wd->bhtw",
            ops.multiply(query_heads, self.key_dim**-0.5),
            vectors,
        )
        return logits + distances_to_keys(of_distances, source_length)

    def retrieve(self, weights, values, start_index):
        target_length, source_length = ops.shape(weights)[2:]
        vectors = self._of_all_distances(
            self.value_table, target_length, source_length, start_index
        )
        return super().retrieve(weights, values, start_index) + ops.einsum(
            "bhtw,wd->bthd", keys_to_distances(weights), vectors
        )

    def _of_all_distances(
        self, table, target_length, source_length, start_index
    ):
        """Rows of a table, `(target_length + source_length, dim)`."""
        distances = ops.clip(
            all_distances(target_length, source_length, start_index),
            -self.max_distance,
            self.max_distance,
        )
        # A weight is cast where it is used, and not as an argument.
        table = ops.convert_to_tensor(table, self.compute_dtype)
        return ops.take(table, distances + self.max_distance, axis=0)

    def get_config(self):
        return {**super().get_config(), "max_distance": self.max_distance}
