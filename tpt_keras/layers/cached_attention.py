from keras import ops

from tpt_keras.layers.base_layer import BaseLayer
from tpt_keras.typing import Tensor


class CachedAttention(BaseLayer):
    """Base class of `TPMultiHeadAttention`: attention over a KV cache.

    The subclass builds the maps, the mechanism and the binding.
    """

    def project_keys_and_values(
        self,
        value: Tensor,
        key: Tensor | None = None,
        padding_mask: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Makes the KV cache of a whole sequence, for `attend`.

        Args:
            value: Tensor `(batch, source_length, hidden_dim)`.
            key: Tensor of the same shape. Defaults to `value`.
            padding_mask: Boolean `(batch, source_length)`, true at real
                tokens. Some mechanisms need it both here and in `attend`.
        """
        key = value if key is None else key
        return self.attention.make_cache(
            self.key_dense(key),
            self.value_dense(value),
            padding_mask,
            **self._inputs(key=key),
        )

    def update_cache(
        self,
        cache: tuple[Tensor, ...],
        value: Tensor,
        index: int | Tensor,
        key: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Writes one position to a KV cache.

        Args:
            cache: Cache from `attention.init_cache` or `update_cache`.
            value: Tensor `(batch, 1, hidden_dim)`.
            index: The position, an integer or a scalar tensor.
            key: Tensor of the same shape. Defaults to `value`.
        """
        key = value if key is None else key
        return self.attention.update_cache(
            cache,
            self.key_dense(key),
            self.value_dense(value),
            index,
            **self._inputs(key=key),
        )

    def _inputs(self, **inputs):
        """The layer's inputs, for a mechanism that takes them."""
        return inputs if self.attention.takes_inputs else {}

    def attend(
        self,
        query: Tensor,
        cache: tuple[Tensor, ...],
        mask: Tensor | None = None,
        index: int | Tensor | None = None,
    ) -> Tensor:
        """Attends over a KV cache, without dropout.

        Args:
            query: Tensor `(batch, target_length, hidden_dim)`.
            cache: Cache from `project_keys_and_values` or `update_cache`.
            mask: Boolean, broadcastable to `(batch, target_length,
                source_length)`, true where a query may attend.
            index: Position of the only query, for a cache from
                `update_cache`.

        Returns:
            The output `(batch, target_length, hidden_dim)`.
        """
        filler, _ = self.attention.attend(
            self.query_dense(query),
            cache,
            attention_mask=mask,
            index=index,
            return_weights=False,
            **self._inputs(query=query),
        )
        return self._bind_and_map(filler, self._role(query))

    def _role(self, query):
        if self.role_dense is None:
            return None
        return self.binding.role(self.role_dense(query))

    def _bind_and_map(self, filler, role):
        if self.output_dense is None:
            return ops.sum(filler, axis=-2)
        return self.binding.bind_and_map(filler, role, self.output_dense)
