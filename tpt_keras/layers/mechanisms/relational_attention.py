from typing import Any

import keras
from keras import ops

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_positive_integer
from tpt_keras.layers.mechanisms.dot_product_attention import (
    DotProductAttention,
)
from tpt_keras.layers.mechanisms.dot_product_attention import write_position
from tpt_keras.layers.mechanisms.relative_attention import clipped_distances
from tpt_keras.layers.mechanisms.relative_attention import keys_to_distances
from tpt_keras.typing import Shape
from tpt_keras.typing import Tensor


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
    paper's layers share them, so that `s W_s` is one table.

    Neither a tensor of relations for each head nor one of symbols for each pair
    of positions is made.

    Args:
        max_distance: Distances beyond this one have this one's symbol. Defaults
            to `161`, the paper's.
        **kwargs: See `DotProductAttention`. `positions` are those of the
            weights, not of the relations.

    The call arguments are those of `AttentionMechanism`, with the numbers of
    heads that `num_heads_of_maps` gives.

    Example:

    >>> mechanism = RelationalAttention(max_distance=4)
    >>> mechanism.num_heads_of_maps(2)
    (4, 4, 1)
    >>> heads = keras.random.normal((3, 10, 4, 8))
    >>> filler, weights = mechanism(heads, heads, heads[:, :, :1])
    >>> filler.shape, weights.shape
    ((3, 10, 2, 8), (3, 2, 10, 10))
    """

    needs_positions = True

    def __init__(self, max_distance: int = 161, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive_integer("max_distance", max_distance)
        self.max_distance = max_distance

    def num_heads_of_maps(self, num_heads: int) -> tuple[int, int, int]:
        if num_heads % 2:
            raise UsageError(
                "Half of the heads of relational attention are relational. "
                f"`num_heads` must be even. Received: {num_heads}",
                field="num_heads",
            )
        return 2 * num_heads, 2 * num_heads, num_heads // 2

    def build(
        self,
        query_heads_shape: Shape,
        key_heads_shape: Shape,
        value_heads_shape: Shape,
    ) -> None:
        *lengths, num_heads, key_dim = query_heads_shape
        super().build(
            (*lengths, num_heads // 2, key_dim),
            key_heads_shape,
            value_heads_shape,
        )
        # As many relations as heads of either kind.
        self.num_relations = self.num_heads // 2
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

    def _split(self, heads):
        """The heads of the weights, and those of the relations, in pairs."""
        heads, of_relations = ops.split(heads, 2, axis=2)
        batch_size, length = ops.shape(heads)[:2]
        pairs = (batch_size, length, self.num_relations, 2 * self.key_dim)
        return heads, ops.reshape(of_relations, pairs)

    def cache_heads(self) -> tuple[tuple[int, int], ...]:
        return (
            (self.num_heads, self.key_dim),
            (self.num_relations, self.value_dim),
            (self.num_relations, 2 * self.key_dim),
        )

    def make_cache(
        self,
        key_heads: Tensor,
        value_heads: Tensor,
        padding_mask: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        key_heads, of_relations = self._split(key_heads)
        return (
            *super().make_cache(key_heads, value_heads),
            ops.transpose(of_relations, (0, 2, 1, 3)),
        )

    def update_cache(
        self,
        cache: tuple[Tensor, ...],
        key_heads: Tensor,
        value_heads: Tensor,
        index: int | Tensor,
    ) -> tuple[Tensor, ...]:
        keys, values, relation_keys = cache
        key_heads, of_relations = self._split(key_heads)
        return (
            *super().update_cache(
                (keys, values), key_heads, value_heads, index
            ),
            write_position(relation_keys, of_relations, index),
        )

    def _attend(self, query_heads, cache, *args):
        keys, values, relation_keys = cache
        query_heads, of_relations = self._split(query_heads)
        relations = ops.einsum(
            "btrd,brsd->brts",
            ops.multiply(of_relations, (2 * self.key_dim) ** -0.5),
            relation_keys,
        )
        # What `retrieve` takes as values.
        retrieved = values, relations
        return super()._attend(query_heads, (keys, retrieved), *args)

    def retrieve(
        self,
        weights: Tensor,
        values: tuple[Tensor, Tensor],
        start_index: int | Tensor,
    ) -> Tensor:
        values, relations = values
        for_values, weights = ops.split(weights, 2, axis=1)
        of_values = super().retrieve(for_values, values, start_index)
        of_relations = ops.einsum(
            "bthr,rhd->bthd",
            ops.einsum("bhts,brts->bthr", weights, relations),
            self._of_heads(self.relation_kernel),
        )
        rows = clipped_distances(
            ops.shape(weights)[2:], start_index, self.max_distance
        )
        symbols = self._of_heads(ops.take(self.symbols, rows, axis=0))
        of_distances = keys_to_distances(weights, ops.shape(rows)[0])
        of_symbols = ops.einsum("bhtw,whd->bthd", of_distances, symbols)
        return ops.concatenate([of_values, of_relations + of_symbols], axis=2)

    def _of_heads(self, weight):
        # Keras casts call arguments, but not weights.
        weight = ops.convert_to_tensor(weight, self.compute_dtype)
        return ops.reshape(weight, (-1, self.num_relations, self.value_dim))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "max_distance": self.max_distance}
