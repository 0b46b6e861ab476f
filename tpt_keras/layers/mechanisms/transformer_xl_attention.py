import keras
from keras import ops

from tpt_keras.layers.mechanisms.distances import all_distances
from tpt_keras.layers.mechanisms.distances import distances_to_keys
from tpt_keras.layers.mechanisms.dot_product_attention import (
    DotProductAttention,
)
from tpt_keras.layers.token_and_position_embedding import position_sinusoids


@keras.saving.register_keras_serializable("tpt_keras")
class TransformerXLAttention(DotProductAttention):
    """The relative dot products of Transformer-XL (Dai et al., 2019).

    A key is matched by its content and by how far it stands, each with a bias
    of its own in place of the query's position (section 3.3 there):

        weights_ij = softmax_j(
            ((q_i + u) k_j + (q_i + v) (W_R R_(i-j))) / sqrt(key_dim))
        filler_i = sum_j weights_ij v_j

    `R` is the sinusoid of a distance, which an encoder also takes of keys
    behind the query. As in the released code `W_R` has no bias, and `u` and
    `v` start from a normal distribution with a standard deviation of 0.02.

    Args:
        biases: Function without arguments that returns the weights `u` and
            `v` of another mechanism, which are this one's too, as they are all
            layers' in the paper's language models. It is no part of the
            config. Defaults to biases of its own.
        **kwargs: See `AttentionMechanism`.

    The call arguments are those of `AttentionMechanism`.

    Example:

    >>> mechanism = TransformerXLAttention()
    >>> heads = keras.random.normal((3, 10, 2, 8))
    >>> mechanism.build(heads.shape, heads.shape, heads.shape)
    >>> filler, weights = mechanism(heads, heads, heads)
    >>> filler.shape, weights.shape
    ((3, 10, 2, 8), (3, 2, 10, 10))
    """

    needs_positions = True

    def __init__(self, biases=None, **kwargs):
        super().__init__(**kwargs)
        # A function, in which Keras sees nothing: of a mechanism it would take
        # all weights for this layer's, and for those of whoever passes it on.
        self._biases = biases

    def build(self, query_heads_shape, key_heads_shape, value_heads_shape):
        super().build(query_heads_shape, key_heads_shape, value_heads_shape)
        make_biases = self._biases or self._make_biases
        self.content_bias, self.position_bias = make_biases()
        width = self.num_heads * self.key_dim
        self.position_kernel = self.add_weight(
            name="position_kernel",
            shape=(width, width),
            initializer="glorot_uniform",
        )

    def _make_biases(self):
        return [
            self.add_weight(
                name=name,
                shape=(self.num_heads, self.key_dim),
                initializer=keras.initializers.RandomNormal(stddev=0.02),
            )
            for name in ("content_bias", "position_bias")
        ]

    def logits(self, query_heads, keys, start_index):
        target_length = ops.shape(query_heads)[1]
        source_length = ops.shape(keys)[2]
        distances = all_distances(target_length, source_length, start_index)
        sinusoids = position_sinusoids(
            -distances, self.position_kernel.shape[0]
        )
        vectors = ops.reshape(
            ops.matmul(
                ops.cast(sinusoids, self.compute_dtype),
                ops.convert_to_tensor(self.position_kernel, self.compute_dtype),
            ),
            (-1, self.num_heads, self.key_dim),
        )  # (target_length + source_length, num_heads, key_dim)
        queries = self._biased(query_heads, self.position_bias)
        # Not by `ops.einsum`, which would move what it gives, the largest
        # tensor here, and not the queries.
        of_distances = ops.matmul(
            ops.transpose(queries * self.key_dim**-0.5, (0, 2, 1, 3)),
            ops.transpose(vectors, (1, 2, 0)),
        )  # (batch, num_heads, target_length, target_length + source_length)
        of_contents = super().logits(
            self._biased(query_heads, self.content_bias), keys, start_index
        )
        return of_contents + distances_to_keys(of_distances, source_length)

    def _biased(self, query_heads, bias):
        # A weight is cast where it is used, and not as an argument.
        return query_heads + ops.convert_to_tensor(bias, query_heads.dtype)
