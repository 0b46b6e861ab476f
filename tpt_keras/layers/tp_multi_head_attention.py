from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from tpt_keras.errors import check_positive_integer
from tpt_keras.layers.attention_inputs import FoldedAxes
from tpt_keras.layers.attention_inputs import merge_masks
from tpt_keras.layers.attention_inputs import resolve_attention_axes
from tpt_keras.layers.attention_inputs import tuple_or_none
from tpt_keras.layers.base_layer import BaseLayer
from tpt_keras.layers.base_layer import serialize
from tpt_keras.layers.bindings import Binding
from tpt_keras.layers.bindings import make_binding
from tpt_keras.layers.bindings import with_gate
from tpt_keras.layers.mechanisms import AttentionMechanism
from tpt_keras.layers.mechanisms import make_mechanism
from tpt_keras.layers.projection import Projection


@keras.saving.register_keras_serializable("tpt_keras")
class TPMultiHeadAttention(BaseLayer):
    """TP-Attention: multi-head attention that binds fillers to roles.

    A drop-in for `keras.layers.MultiHeadAttention`, with all of its arguments.
    Every head also computes a role `r` from the query and binds to it the
    filler that it retrieved, before the output map (equations 1 to 4 of
    [Schlag et al., 2019](https://arxiv.org/abs/1910.06611)):

        filler = softmax(q k^T / sqrt(key_dim)) v
        output = W_o (filler * r) + b_o

    With `binding="none"` there is no role. Given the weights of a Keras layer
    (`layer.set_weights(keras_layer.get_weights())`), the output is then the
    Keras layer's, and with `binding="gated"` that of one with `use_gate=True`.
    Unlike in Keras, kernels are initialized as matrices (see `Projection`).

    Args:
        num_heads: Number of attention heads (the paper's H).
        key_dim: Size of each head's query and key (the paper's d_k).
        value_dim: Size of each head's value, filler and role. Defaults to
            `key_dim`.
        dropout: Dropout rate of the attention weights. Defaults to `0.0`.
        use_bias: Whether the maps have biases. Defaults to `True`.
        output_shape: Size or sizes of the output. Defaults to the query's.
        attention_axes: Axis or axes to attend over, if the inputs have several
            between the batch and the features. Defaults to all of them. The
            arguments after it need names: their order in Keras has changed.
        binding: The binding of fillers to roles: `"hadamard"` (default),
            `"none"` (standard attention), another of
            `tpt_keras.layers.BINDINGS`, the registered name of a `Binding`, or
            an instance.
        kernel_initializer: Initializer of the maps' matrices.
        bias_initializer: Initializer of the maps' biases.
        kernel_regularizer: Regularizer of the kernels.
        bias_regularizer: Regularizer of the biases.
        activity_regularizer: Regularizer of the layer's output.
        kernel_constraint: Constraint on the kernels.
        bias_constraint: Constraint on the biases.
        seed: Seed of the dropout.
        sliding_window: Limits attention to positions that are nearer than this.
        flash_attention: See `DotProductAttention`.
        attention: The attention mechanism: `"dot_product"` (default), another
            of `tpt_keras.layers.MECHANISMS`, the registered name of an
            `AttentionMechanism`, or an instance, which has a `dropout`,
            `sliding_window` and `seed` of its own. Layers that are given the
            same instance share its weights. Keras loads such a model if its
            class makes the layers, and no functional model.
        attention_options: Dict of further arguments of the named mechanism.
        binding_options: Dict of further arguments of the named binding.
        use_gate: Keras's name of `binding="gated"`, in place of the default.
        **kwargs: Keras's base layer arguments.

    Call arguments:
        query: Tensor `(batch, target_length, hidden_dim)`, or with several
            axes in place of the length: `(batch, ..., hidden_dim)`.
        value: Tensor `(batch, source_length, hidden_dim)`.
        key: Tensor `(batch, source_length, hidden_dim)`. Defaults to `value`.
        query_mask: Boolean `(batch, target_length)`. Defaults to the tensor's
            Keras mask, as do the next two.
        value_mask: Boolean `(batch, source_length)`.
        key_mask: Boolean `(batch, source_length)`.
        attention_mask: Boolean `(batch, target_length, source_length)`, true
            where a query may attend. Missing axes broadcast. With several
            attention axes `(batch, others..., targets..., sources...)`, where
            the others are the axes that are not attended over.
        return_attention_scores: Whether to also return the attention weights.
        return_intermediates: Whether to also return weights, roles and fillers.
        training: Whether to apply dropout.
        use_causal_mask: Whether to mask the positions after each query.
        start_index: Position of the first query among the keys. Defaults to
            `0`; keys may start with a memory.

    Returns:
        The output `(batch, target_length, hidden_dim)`. With
        `return_attention_scores=True` also the attention weights
        `(batch, num_heads, target_length, source_length)`, or with several
        axes `(batch, others..., num_heads, targets..., sources...)`. With
        `return_intermediates=True`, after these, a dict of the same `weights`
        and of the `roles` and `fillers` `(batch, target_length, num_heads,
        value_dim)`, or with several axes `(batch, ..., num_heads, value_dim)`.
        Weights or roles that there are not are not in it.

    Raises:
        ValueError: If the arguments, or the shapes of the inputs, are invalid
            or do not fit together.

    Example:

    >>> layer = TPMultiHeadAttention(num_heads=2, key_dim=8)
    >>> x = keras.random.normal((3, 10, 16))
    >>> layer(x, x, use_causal_mask=True).shape
    (3, 10, 16)
    """

    traced_arguments = ("return_attention_scores", "return_intermediates")

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        output_shape: int | Sequence[int] | None = None,
        attention_axes: int | Sequence[int] | None = None,
        *,
        binding: str | Binding = "hadamard",
        kernel_initializer: str | keras.Initializer = "glorot_uniform",
        bias_initializer: str | keras.Initializer = "zeros",
        kernel_regularizer: str | keras.Regularizer | None = None,
        bias_regularizer: str | keras.Regularizer | None = None,
        activity_regularizer: str | keras.Regularizer | None = None,
        kernel_constraint: str | keras.constraints.Constraint | None = None,
        bias_constraint: str | keras.constraints.Constraint | None = None,
        seed: int | None = None,
        sliding_window: int | None = None,
        flash_attention: bool | None = None,
        attention: str | AttentionMechanism = "dot_product",
        attention_options: dict[str, Any] | None = None,
        binding_options: dict[str, Any] | None = None,
        use_gate: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        value_dim = key_dim if value_dim is None else value_dim
        check_positive_integer("num_heads", num_heads)
        check_positive_integer("key_dim", key_dim)
        check_positive_integer("value_dim", value_dim)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.dropout = dropout
        self.use_bias = use_bias
        self._output_shape = tuple_or_none(output_shape)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.seed = seed
        self.attention_axes = tuple_or_none(attention_axes)
        self.sliding_window = sliding_window
        self.flash_attention = flash_attention
        self.attention_options = dict(attention_options or {})
        self.binding_options = dict(binding_options or {})
        self.use_gate = use_gate
        self._make_parts(attention, with_gate(binding) if use_gate else binding)

    def _make_parts(self, attention, binding):
        self._attention_name = attention if isinstance(attention, str) else None
        self._binding_name = binding if isinstance(binding, str) else None
        options = self.attention_options
        if self.flash_attention is not None:
            options = {**options, "flash_attention": self.flash_attention}
        self.attention = make_mechanism(
            attention,
            options,
            dropout=self.dropout,
            sliding_window=self.sliding_window,
            seed=self.seed,
            dtype=self.dtype_policy,
            name="attention",
        )
        self.binding = make_binding(
            binding,
            self.binding_options,
            dtype=self.dtype_policy,
            name="binding",
        )
        self.attention.check_layer(self.num_heads, self.binding)

    def build(self, query_shape, value_shape, key_shape=None):
        key_shape = value_shape if key_shape is None else key_shape
        self._resolve_axes(query_shape, value_shape, key_shape)
        query_heads = key_heads = (self.num_heads, self.key_dim)
        value_heads = (
            self.num_heads // self.attention.num_kinds,
            self.value_dim,
        )
        # Instances may be built already.
        if not self.binding.built:
            self.binding.build((None, None, self.num_heads, self.value_dim))
        # In Keras's order (query, key, gate, value, output), so that the
        # weights of a Keras layer fit a layer without a role or with a gate.
        self.query_dense = self._projection(query_heads, "query", query_shape)
        self.key_dense = self._projection(key_heads, "key", key_shape)
        self.role_dense = None
        if self.binding.role_before_value:
            self.role_dense = self._role_map(query_shape)
        self.value_dense = self._projection(value_heads, "value", value_shape)
        if self.binding.has_role and self.role_dense is None:
            self.role_dense = self._role_map(query_shape)
        self.output_dense = self._output_map(query_shape)
        if not self.attention.built:
            heads = query_heads, key_heads, value_heads
            self.attention.build(
                *((None, None, *each) for each in heads),
                **self._inputs(query_shape=query_shape, key_shape=key_shape),
            )
        self.built = True

    def _role_map(self, query_shape):
        role_heads = (self.num_heads, self.binding.role_dim)
        return self._projection(role_heads, "role", query_shape)

    def _output_map(self, query_shape):
        output_shape = self._output_shape or (query_shape[-1],)
        output_dim = self.attention.output_dim
        if output_dim is None:
            return self._projection(
                output_shape,
                "attention_output",
                (*query_shape[:-1], self.num_heads, self.binding.bound_dim),
                num_input_axes=2,
            )
        if (output_dim,) != output_shape:
            raise ValueError(
                "The `output_dim` of the attention mechanism must be the size "
                f"of the output, {output_shape}. Received: {output_dim}"
            )
        return None

    def _projection(self, output_shape, name, input_shape, **kwargs):
        layer = Projection(
            output_shape,
            use_bias=self.use_bias,
            kernel_initializer=self.kernel_initializer,
            bias_initializer=self.bias_initializer,
            kernel_regularizer=self.kernel_regularizer,
            bias_regularizer=self.bias_regularizer,
            kernel_constraint=self.kernel_constraint,
            bias_constraint=self.bias_constraint,
            dtype=self.dtype_policy,
            name=name,
            **kwargs,
        )
        layer.build(input_shape)
        return layer

    def call(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        start_index=0,
        return_intermediates=False,
    ):
        if return_attention_scores and not self.attention.has_attention_scores:
            raise ValueError(
                "`return_attention_scores` needs an attention mechanism with "
                f"attention weights. Received: {self.attention}"
            )
        key = value if key is None else key
        axes = self._resolve_axes(
            query.shape, value.shape, key.shape, use_causal_mask
        )
        folded = None
        if len(query.shape) > 3:
            folded = FoldedAxes(
                axes, self.num_heads, ops.shape(query), ops.shape(value)
            )
            query, value, key = map(folded.fold, (query, value, key))
            query_mask, value_mask, key_mask = map(
                folded.fold_padding_mask, (query_mask, value_mask, key_mask)
            )
            attention_mask = folded.fold_attention_mask(attention_mask)
        if not self.attention.has_attention_scores:
            query_mask = None  # there are no rows of weights to mask
        filler, weights = self.attention(
            self.query_dense(query),
            self.key_dense(key),
            self.value_dense(value),
            attention_mask=merge_masks(
                query_mask, value_mask, key_mask, attention_mask
            ),
            use_causal_mask=use_causal_mask,
            start_index=start_index,
            training=training,
            return_weights=return_attention_scores or return_intermediates,
            **self._inputs(query=query, key=key),
        )
        role = self._role(query)
        output = self._bind_and_map(filler, role)
        if folded:
            output, filler, role = map(folded.unfold, (output, filler, role))
            weights = folded.unfold_weights(weights)
        outputs = [output]
        if return_attention_scores:
            outputs.append(weights)
        if return_intermediates:
            found = {"weights": weights, "roles": role, "fillers": filler}
            outputs.append({k: v for k, v in found.items() if v is not None})
        return tuple(outputs) if len(outputs) > 1 else outputs[0]

    def project_keys_and_values(self, value, key=None, padding_mask=None):
        """Makes the KV cache of a whole sequence, for `attend`.

        `value` and `key` are call arguments. Some mechanisms need the
        `padding_mask`, boolean `(batch, source_length)`, here too.
        """
        key = value if key is None else key
        return self.attention.make_cache(
            self.key_dense(key),
            self.value_dense(value),
            padding_mask,
            **self._inputs(key=key),
        )

    def update_cache(self, cache, value, index):
        """Writes the position `index` to a KV cache.

        The `value`, `(batch, 1, hidden_dim)`, is the key too.
        """
        return self.attention.update_cache(
            cache,
            self.key_dense(value),
            self.value_dense(value),
            index,
            **self._inputs(key=value),
        )

    def _inputs(self, **inputs):
        """The layer's inputs, for a mechanism that takes them."""
        return inputs if self.attention.takes_inputs else {}

    def attend(self, query, cache, mask=None, index=None):
        """Attends over a KV cache, without dropout.

        Args:
            query: Tensor `(batch, target_length, hidden_dim)`.
            cache: Cache from `project_keys_and_values` or `update_cache` of
                this layer. That of another layer cannot be told from it.
            mask: Boolean, broadcastable to `(batch, target_length,
                source_length)`, true where a query may attend.
            index: Position of the only query, for a cache of `update_cache`.

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

    def _resolve_axes(
        self, query_shape, value_shape, key_shape, is_causal=False
    ):
        return resolve_attention_axes(
            self.attention_axes,
            query_shape,
            value_shape,
            value_shape if key_shape is None else key_shape,
            has_order=is_causal or self.attention.uses_distances,
        )

    def compute_mask(self, query, query_mask=None):
        return query_mask

    def compute_output_shape(self, query_shape, value_shape, key_shape=None):
        self._resolve_axes(query_shape, value_shape, key_shape)
        return (*query_shape[:-1], *(self._output_shape or query_shape[-1:]))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "output_shape": self._output_shape,
            "binding": serialize(self._binding_name or self.binding),
            "attention": serialize(self._attention_name or self.attention),
        }
