from typing import Any

import keras
from keras import ops

from tpt_keras.errors import check_positive_integer
from tpt_keras.layers.mechanisms.dot_product_attention import (
    DotProductAttention,
)
from tpt_keras.layers.mechanisms.dot_product_attention import write_position
from tpt_keras.layers.mechanisms.relative_attention import clipped_distances
from tpt_keras.layers.mechanisms.relative_attention import keys_to_distances
from tpt_keras.layers.projection import Projection


@keras.saving.register_keras_serializable("tpt_keras")
class RelationalAttention(DotProductAttention):
    """Dual attention: half of the heads retrieve relations (Altabaa et al.).

    The first half of the heads are dot products. In place of a value, each
    head of the second half retrieves the relations of a query with a key, and
    a symbol that tells where the key is, not what it holds (section 2 of
    [Altabaa and Lafferty, 2024](https://arxiv.org/abs/2405.16727)):

        filler_i = sum_j weights_ij (r_ij W_r + s_(j-i) W_s)
        r_ij = (q^1_i k^1_j, ..., q^n_i k^n_j) / sqrt(2 key_dim)

    There are as many relations as such heads, and all of these heads share
    them. The queries and keys of a relation have maps of their own, of the size
    of two heads. As in the paper's experiments with mathematics, symbols are
    relative to the query. Every attention has symbols of its own, whereas the
    paper's layers share them, so that `s W_s` is one table. No tensor has
    relations for each head, or symbols for each pair of positions.

    Args:
        max_distance: Distances beyond this one have this one's symbol. Defaults
            to `161`, the paper's.
        **kwargs: See `DotProductAttention`. `positions` are those of the
            weights, not of the relations.

    Call arguments:
        query: The query of the `TPMultiHeadAttention`, `(batch, target_length,
            hidden_dim)`.
        key: Its key, `(batch, source_length, hidden_dim)`.

    The others are those of `AttentionMechanism`. The values have half as many
    heads as the queries and keys.

    Example:

    >>> mechanism = RelationalAttention(max_distance=4)
    >>> x = keras.random.normal((3, 10, 16))
    >>> heads = keras.random.normal((3, 10, 2, 8))
    >>> values = heads[:, :, :1]
    >>> filler, weights = mechanism(heads, heads, values, query=x, key=x)
    >>> filler.shape, weights.shape
    ((3, 10, 2, 8), (3, 2, 10, 10))
    """

    needs_positions = True
    takes_inputs = True
    num_kinds = 2

    def __init__(self, max_distance: int = 161, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive_integer("max_distance", max_distance)
        self.max_distance = max_distance

    def build(
        self,
        query_heads_shape,
        key_heads_shape,
        value_heads_shape,
        query_shape,
        key_shape,
    ):
        super().build(query_heads_shape, key_heads_shape, value_heads_shape)
        # As many relations as heads of either kind.
        self.num_relations = self.num_heads // 2
        self.query_dense = self._projection("relation_query", query_shape)
        self.key_dense = self._projection("relation_key", key_shape)
        self.relation_kernel, self.symbols = (
            self.add_weight(
                name=name,
                shape=(rows, self.num_relations * self.value_dim),
                initializer="glorot_uniform",
            )
            for name, rows in (
                ("relation_kernel", self.num_relations),
                ("symbols", 2 * self.max_distance + 1),
            )
        )

    def _projection(self, name, input_shape):
        layer = Projection(
            (self.num_relations, 2 * self.key_dim),
            dtype=self.dtype_policy,
            name=name,
        )
        layer.build(input_shape)
        return layer

    def cache_heads(self) -> tuple[tuple[int, int], ...]:
        return (
            (self.num_heads, self.key_dim),
            (self.num_relations, self.value_dim),
            (self.num_relations, 2 * self.key_dim),
        )

    def make_cache(self, key_heads, value_heads, padding_mask=None, key=None):
        return (
            *super().make_cache(key_heads, value_heads),
            ops.transpose(self.key_dense(key), (0, 2, 1, 3)),
        )

    def update_cache(self, cache, key_heads, value_heads, index, key=None):
        *cache, relation_keys = cache
        return (
            *super().update_cache(cache, key_heads, value_heads, index),
            write_position(relation_keys, self.key_dense(key), index),
        )

    def _fillers(self, weights, cache, start_index, query):
        _, values, relation_keys = cache
        for_values, for_relations = ops.split(weights, 2, axis=1)
        scale = (2 * self.key_dim) ** -0.5
        queries = ops.multiply(self.query_dense(query), scale)
        relations = ops.einsum("btrd,brsd->brts", queries, relation_keys)
        of_values = self.retrieve(for_values, values, start_index)
        of_relations = ops.add(
            self._retrieve_relations(for_relations, relations),
            self._retrieve_symbols(for_relations, start_index),
        )
        return ops.concatenate([of_values, of_relations], axis=2)

    def _retrieve_relations(self, weights, relations):
        return ops.einsum(
            "bthr,rhd->bthd",
            ops.einsum("bhts,brts->bthr", weights, relations),
            self._of_heads(self.relation_kernel),
        )

    def _retrieve_symbols(self, weights, start_index):
        rows = clipped_distances(
            ops.shape(weights)[2:], start_index, self.max_distance
        )
        symbols = self._of_heads(ops.take(self.symbols, rows, axis=0))
        of_distances = keys_to_distances(weights, ops.shape(rows)[0])
        return ops.einsum("bhtw,whd->bthd", of_distances, symbols)

    def _of_heads(self, weight):
        # Keras casts call arguments, but not weights.
        weight = ops.convert_to_tensor(weight, self.compute_dtype)
        return ops.reshape(weight, (-1, self.num_relations, self.value_dim))
