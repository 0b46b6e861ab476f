import keras
from keras import ops

from tpt_keras.layers.attention_axes import FoldedAxes
from tpt_keras.layers.attention_axes import resolve_attention_axes
from tpt_keras.layers.attention_axes import weights_shape
from tpt_keras.layers.attention_masks import merge_masks
from tpt_keras.layers.bindings import make_binding
from tpt_keras.layers.dtype_config import dtype_config
from tpt_keras.layers.mechanisms import make_mechanism
from tpt_keras.layers.projection import Projection
from tpt_keras.layers.rematerializable import Rematerializable


@keras.saving.register_keras_serializable("tpt_keras")
class TPMultiHeadAttention(Rematerializable, keras.layers.Layer):
    """TP-Attention: multi-head attention that binds fillers to roles.

    A drop-in for `keras.layers.MultiHeadAttention`, all of whose arguments it
    takes but `flash_attention` and `use_gate`. Besides query, key and value
    every head computes a role `r` from the query's side and binds to it what
    it retrieved, the filler, before the output map (equations 1 to 4 of
    Schlag et al., 2019):

        filler = softmax(q k^T / sqrt(key_dim)) v
        output = W_o (filler * r) + b_o

    With `binding="none"` there is no role, and with the weights of a Keras
    layer (`layer.set_weights(keras_layer.get_weights())`) the output is the
    Keras layer's.

    Unlike in Keras, kernels are initialised as the matrices they are (see
    `Projection`).

    Args:
        num_heads: Number of attention heads (the paper's H).
        key_dim: Size of each head's query and key (the paper's d_k).
        value_dim: Size of each head's value, filler and role. Defaults to
            `key_dim`.
        dropout: Dropout rate of the attention weights. Defaults to `0.0`.
        use_bias: Whether the maps have biases. Defaults to `True`.
        output_shape: Size of the output's last axis (or axes). Defaults to
            the query's.
        binding: How the filler is bound to the role, a name in
            `tpt_keras.layers.BINDINGS`: `"hadamard"` (the TP-Transformer,
            default), `"tensor"` (the full tensor product, contracted by the
            output map), `"discrete"` (roles from a dictionary) or `"none"`
            (standard attention); or the registered name of a `Binding` of
            your own.
        kernel_initializer: Initializer of the maps' matrices.
        bias_initializer: Initializer of the maps' biases.
        kernel_regularizer: Regularizer of the kernels.
        bias_regularizer: Regularizer of the biases.
        activity_regularizer: Regularizer of the layer's output.
        kernel_constraint: Constraint on the kernels.
        bias_constraint: Constraint on the biases.
        seed: Seed of the dropout.
        attention_axes: Axis or axes over which is attended, where there are
            more than one between the first, the batch, and the last, the
            features. Defaults to all of them.
        sliding_window: If given, a position sees those that are fewer steps
            away than this.
        attention: How queries meet keys: a name in
            `tpt_keras.layers.MECHANISMS`, or the registered name of an
            `AttentionMechanism` of your own. Defaults to `"dot_product"`. One
            that has an `output_dim` is the output map too.
        attention_options: Dict of the arguments that this mechanism alone
            takes.
        binding_options: Dict of the arguments that this binding alone takes.
        **kwargs: Keras's base layer arguments.

    Call arguments:
        query: Tensor `(batch, target_length, hidden_dim)`, or with more axes
            in place of the length: `(batch, ..., hidden_dim)`.
        value: Tensor `(batch, source_length, hidden_dim)`.
        key: Tensor `(batch, source_length, hidden_dim)`. Defaults to `value`.
        query_mask: Boolean `(batch, target_length)`; like the other two masks
            it is taken from the tensor's Keras mask when not given.
        value_mask: Boolean `(batch, source_length)`.
        key_mask: Boolean `(batch, source_length)`.
        attention_mask: Boolean `(batch, target_length, source_length)`, true
            where a query may attend; missing axes broadcast. With more axes
            `(batch, others..., targets..., sources...)`, where the others are
            those that are not attended over.
        return_attention_scores: Whether to also return the attention weights.
        return_roles: Whether to also return the roles.
        training: Whether to apply dropout.
        use_causal_mask: Whether a position sees none after itself.
        start_index: Position of the first query among the keys, where they
            do not start together: behind a memory. Defaults to `0`.

    Returns:
        The output `(batch, target_length, hidden_dim)`; with
        `return_attention_scores=True` also the attention weights
        `(batch, num_heads, target_length, source_length)`, or with more axes
        `(batch, others..., num_heads, targets..., sources...)`; with
        `return_roles=True`, after these, the roles `(batch, target_length,
        num_heads, value_dim)`, or with more axes `(batch, ..., num_heads,
        value_dim)`.

    Raises:
        ValueError: If `binding` or `attention` is unknown or does not take its
            options, they do not go together, a size is not positive,
            `flash_attention` or `use_gate` is asked for, the inputs' lengths
            do not match, or attention weights or roles are asked of a mechanism
            or a binding that has none.

    Example:

    >>> layer = TPMultiHeadAttention(num_heads=2, key_dim=8)
    >>> x = keras.random.normal((3, 10, 16))
    >>> layer(x, x, use_causal_mask=True).shape
    (3, 10, 16)

    Reference:
        [Schlag et al., 2019](https://arxiv.org/abs/1910.06611)
    """

    def __init__(
        self,
        num_heads,
        key_dim,
        value_dim=None,
        dropout=0.0,
        use_bias=True,
        output_shape=None,
        binding="hadamard",
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        activity_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        seed=None,
        attention_axes=None,
        sliding_window=None,
        attention="dot_product",
        attention_options=None,
        binding_options=None,
        **kwargs,
    ):
        for name in ("flash_attention", "use_gate"):
            if kwargs.pop(name, None):
                raise ValueError(
                    f"`TPMultiHeadAttention` does not take `{name}`. Leave it "
                    "out, or use `keras.layers.MultiHeadAttention`."
                )
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        value_dim = key_dim if value_dim is None else value_dim
        _check_positive(
            num_heads=num_heads,
            key_dim=key_dim,
            value_dim=value_dim,
            sliding_window=1 if sliding_window is None else sliding_window,
        )
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.dropout = dropout
        self.use_bias = use_bias
        self._output_shape = _tuple_or_none(output_shape)
        # An unknown one, and unknown options, are refused here.
        has_role = make_binding(binding, binding_options).has_role
        unbuilt = make_mechanism(
            attention, attention_options, sliding_window=sliding_window
        )
        self._attention_output_dim = unbuilt.output_dim
        if self._attention_output_dim is not None and has_role:
            raise ValueError(
                f"A mechanism {attention!r} with an `output_dim` is the output "
                f'map too, which leaves nothing to bind: use binding="none". '
                f"Received: {binding!r}"
            )
        self.binding_name = binding
        self.binding_options = dict(binding_options or {})
        self.attention_name = attention
        self.attention_options = dict(attention_options or {})
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.seed = seed
        self.attention_axes = _tuple_or_none(attention_axes)
        self.sliding_window = sliding_window
        self.supports_masking = True

    def build(self, query_shape, value_shape, key_shape=None):
        key_shape = value_shape if key_shape is None else key_shape
        self._resolve_axes(query_shape, value_shape, key_shape)
        key_heads = (self.num_heads, self.key_dim)
        value_heads = (self.num_heads, self.value_dim)
        self.binding = make_binding(
            self.binding_name,
            self.binding_options,
            dtype=self.dtype_policy,
            name="binding",
        )
        self.binding.build((None, None, *value_heads))
        # Created in Keras's order (query, key, value, output), so that its
        # weights fit a layer without a role.
        self.query_dense = self._projection(key_heads, "query", query_shape)
        self.key_dense = self._projection(key_heads, "key", key_shape)
        self.value_dense = self._projection(value_heads, "value", value_shape)
        self.role_dense = None
        if self.binding.has_role:
            self.role_dense = self._projection(
                (self.num_heads, self.binding.role_dim), "role", query_shape
            )
        output_shape = self._output_shape or (query_shape[-1],)
        self.output_dense = None
        if self._attention_output_dim is None:
            self.output_dense = self._projection(
                output_shape,
                "attention_output",
                (*query_shape[:-1], self.num_heads, self.binding.bound_dim),
                num_input_axes=2,
            )
        elif (self._attention_output_dim,) != output_shape:
            raise ValueError(
                f"The mechanism's `output_dim` must be the output's size. "
                f"Received: output_dim={self._attention_output_dim}, output "
                f"shape {output_shape}"
            )
        # After the maps, or a seed would give them other weights.
        self.attention = make_mechanism(
            self.attention_name,
            self.attention_options,
            dropout=self.dropout,
            sliding_window=self.sliding_window,
            seed=self.seed,
            dtype=self.dtype_policy,
            name="attention",
        )
        self.attention.build(
            (None, None, *key_heads),
            (None, None, *key_heads),
            (None, None, *value_heads),
        )
        self.built = True

    @property
    def dropout_layer(self):
        """The dropout of the attention weights, as a part of this layer.

        Keras saves its state under the first name that it finds it by, which
        is this one: the name it had before it became the mechanism's.
        """
        return self.attention.dropout_layer

    def _projection(self, output_shape, name, input_shape, num_input_axes=1):
        layer = Projection(
            output_shape,
            num_input_axes=num_input_axes,
            use_bias=self.use_bias,
            kernel_initializer=self.kernel_initializer.clone(),
            bias_initializer=self.bias_initializer.clone(),
            kernel_regularizer=self.kernel_regularizer,
            bias_regularizer=self.bias_regularizer,
            kernel_constraint=self.kernel_constraint,
            bias_constraint=self.bias_constraint,
            dtype=self.dtype_policy,
            name=name,
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
        return_roles=False,
    ):
        self._check_returned(return_attention_scores, return_roles)
        key = value if key is None else key
        axes = self._resolve_axes(query.shape, value.shape, key.shape)
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
        if len(axes) > 1 and (
            use_causal_mask
            or self.attention.sliding_window is not None
            or self.attention.needs_positions
        ):
            raise ValueError(
                "A causal mask, a sliding window and relative positions need "
                f"a single attention axis. Received: attention_axes={axes}"
            )
        filler, weights = self.attention(
            self.query_dense(query),
            *self._key_and_value_heads(value, key),
            attention_mask=merge_masks(
                query_mask, value_mask, key_mask, attention_mask
            ),
            use_causal_mask=use_causal_mask,
            start_index=start_index,
            training=training,
        )
        role = self._role(query)
        output = self._bind_and_map(filler, role)
        outputs = [folded.unfold(output) if folded else output]
        if return_attention_scores:
            outputs.append(
                folded.unfold_weights(weights) if folded else weights
            )
        if return_roles:
            outputs.append(folded.unfold(role) if folded else role)
        return tuple(outputs) if len(outputs) > 1 else outputs[0]

    def _check_returned(self, return_attention_scores, return_roles):
        if return_roles and not self.binding.has_role:
            raise ValueError(
                f"The binding {self.binding_name!r} has no roles to return "
                "(`return_roles=True`)."
            )
        if return_attention_scores and not self.attention.has_weights:
            raise ValueError(
                f"The attention mechanism {self.attention_name!r} has no "
                "attention weights to return (`return_attention_scores=True`)."
            )

    def _resolve_axes(self, query_shape, value_shape, key_shape=None):
        key_shape = value_shape if key_shape is None else key_shape
        return resolve_attention_axes(
            self.attention_axes, query_shape, value_shape, key_shape
        )

    def project_keys_and_values(self, value, key=None, padding_mask=None):
        """What `attend` wants of keys and values, computed once to be kept.

        Args:
            value: Tensor `(batch, source_length, hidden_dim)`.
            key: Tensor of the same shape. Defaults to `value`.
            padding_mask: Boolean `(batch, source_length)`, true at real
                tokens, which some mechanisms need here and not only in
                `attend`.

        Returns:
            A tuple of tensors, laid out as the mechanism wants them. Of dot
            products the keys `(batch, num_heads, source_length, key_dim)` and
            the values `(batch, num_heads, source_length, value_dim)`.
        """
        heads = self._key_and_value_heads(value, key)
        return self.attention.make_cache(*heads, padding_mask)

    def init_cache(self, batch_size, max_length):
        """An empty cache for attention to one position after the other.

        Args:
            batch_size: Number of rows, an integer or a scalar tensor.
            max_length: Most positions, an integer.

        Returns:
            A tuple of tensors `(batch, ...)`, laid out as the mechanism
            wants them.
        """
        return self.attention.init_cache(batch_size, max_length)

    def grow_cache(self, cache, max_length):
        """The cache with room for more positions.

        Args:
            cache: What `init_cache` or the last update gave.
            max_length: Most positions, no fewer than there were, an integer
                or a scalar tensor.

        Returns:
            A tuple of tensors `(batch, ...)`.
        """
        return self.attention.grow_cache(cache, max_length)

    def update_cache(self, cache, value, index):
        """The cache with the keys and values of one more position.

        Args:
            cache: What `init_cache` or the last update gave.
            value: Tensor `(batch, 1, hidden_dim)`.
            index: The position, an integer or a scalar tensor.

        Returns:
            A tuple of tensors of the same shapes.
        """
        heads = self._key_and_value_heads(value)
        return self.attention.update_cache(cache, *heads, index)

    def _key_and_value_heads(self, value, key=None):
        key = value if key is None else key
        return self.key_dense(key), self.value_dense(value)

    def attend(self, query, *cache, mask=None, index=None, training=None):
        """Attention over kept keys and values.

        Args:
            query: Tensor `(batch, target_length, hidden_dim)`.
            *cache: What `project_keys_and_values` or `update_cache` gave; of
                dot products the keys and the values.
            mask: Boolean, broadcastable to `(batch, target_length,
                source_length)`, true where a query may attend.
            index: Position of the one query, where the cache is of positions
                that come one after the other.
            training: Whether to apply dropout.

        Returns:
            The output `(batch, target_length, hidden_dim)` and the attention
            weights `(batch, num_heads, target_length, source_length)`, or
            `None` where the mechanism has none.
        """
        filler, weights = self.attention.attend(
            self.query_dense(query),
            cache,
            attention_mask=mask,
            index=index,
            training=training,
        )
        return self._bind_and_map(filler, self._role(query)), weights

    def _role(self, query):
        if self.role_dense is None:
            return None
        return self.binding.role(self.role_dense(query))

    def _bind_and_map(self, filler, role):
        if self.output_dense is None:
            return ops.sum(filler, axis=-2)
        return self.binding.bind_and_map(filler, role, self.output_dense)

    def compute_mask(self, query, query_mask=None):
        return query_mask

    def compute_output_shape(self, query_shape, value_shape, key_shape=None):
        self._resolve_axes(query_shape, value_shape, key_shape)
        return (*query_shape[:-1], *(self._output_shape or query_shape[-1:]))

    def compute_output_spec(
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
        return_roles=False,
    ):
        self._check_returned(return_attention_scores, return_roles)
        key = value if key is None else key
        shapes = (query.shape, value.shape, key.shape)
        returned = [self.compute_output_shape(*shapes)]
        if return_attention_scores:
            axes = self._resolve_axes(*shapes)
            returned.append(
                weights_shape(axes, self.num_heads, query.shape, value.shape)
            )
        if return_roles:
            returned.append((*query.shape[:-1], self.num_heads, self.value_dim))
        outputs = tuple(
            keras.KerasTensor(shape, dtype=self.compute_dtype)
            for shape in returned
        )
        return outputs if len(outputs) > 1 else outputs[0]

    def get_config(self):
        return {
            **super().get_config(),
            "dtype": dtype_config(self),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "output_shape": self._output_shape,
            "binding": self.binding_name,
            "binding_options": self.binding_options,
            "attention": self.attention_name,
            "attention_options": self.attention_options,
            "kernel_initializer": keras.initializers.serialize(
                self.kernel_initializer
            ),
            "bias_initializer": keras.initializers.serialize(
                self.bias_initializer
            ),
            "kernel_regularizer": keras.regularizers.serialize(
                self.kernel_regularizer
            ),
            "bias_regularizer": keras.regularizers.serialize(
                self.bias_regularizer
            ),
            "activity_regularizer": keras.regularizers.serialize(
                self.activity_regularizer
            ),
            "kernel_constraint": keras.constraints.serialize(
                self.kernel_constraint
            ),
            "bias_constraint": keras.constraints.serialize(
                self.bias_constraint
            ),
            "seed": self.seed,
            "attention_axes": self.attention_axes,
            "sliding_window": self.sliding_window,
        }


def _check_positive(**sizes):
    for name, size in sizes.items():
        if not isinstance(size, int) or size <= 0:
            raise ValueError(
                f"`{name}` must be a positive integer. Received: {size!r}"
            )


def _tuple_or_none(sizes):
    """Of what may be one integer, several or nothing."""
    if isinstance(sizes, int):
        return (sizes,)
    return tuple(sizes) if sizes else None
