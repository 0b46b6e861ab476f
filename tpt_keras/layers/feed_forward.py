import keras

from tpt_keras.layers.dtype_config import dtype_config
from tpt_keras.layers.projection import Projection
from tpt_keras.layers.rematerializable import Rematerializable


@keras.saving.register_keras_serializable("tpt_keras")
class FeedForward(Rematerializable, keras.layers.Layer):
    """The feed-forward sub-layer of a cell (equation 5 of the paper).

    `FF(x) = W_g relu(W_f x + b_f) + b_g`, at every position alike.

    Args:
        intermediate_dim: Size of the hidden layer (the paper's d_f).
        activation: The nonlinearity. Defaults to `"relu"`.
        dropout: Dropout rate after the activation. Defaults to `0.0`.
        kernel_initializer: Initializer of both kernels.
        bias_initializer: Initializer of both biases.
        seed: Seed of the dropout.
        **kwargs: Keras's base layer arguments.

    Call arguments:
        inputs: Tensor `(batch, length, hidden_dim)`.
        training: Whether to apply dropout.

    Returns:
        Tensor `(batch, length, hidden_dim)`.

    Example:

    >>> FeedForward(intermediate_dim=32)(keras.ops.ones((2, 5, 8))).shape
    (2, 5, 8)
    """

    def __init__(
        self,
        intermediate_dim,
        activation="relu",
        dropout=0.0,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.intermediate_dim = intermediate_dim
        self.activation = keras.activations.get(activation)
        self.dropout = dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.seed = seed
        self.supports_masking = True

    def build(self, input_shape):
        hidden_dim = input_shape[-1]

        def projection(units, name):
            return Projection(
                units,
                kernel_initializer=self.kernel_initializer.clone(),
                bias_initializer=self.bias_initializer.clone(),
                dtype=self.dtype_policy,
                name=name,
            )

        self.intermediate_dense = projection(
            self.intermediate_dim, "intermediate"
        )
        self.intermediate_dense.build(input_shape)
        self.output_dense = projection(hidden_dim, "output")
        self.output_dense.build((*input_shape[:-1], self.intermediate_dim))
        self.dropout_layer = keras.layers.Dropout(
            self.dropout, seed=self.seed, dtype=self.dtype_policy
        )
        self.built = True

    def call(self, inputs, training=None):
        x = self.activation(self.intermediate_dense(inputs))
        x = self.dropout_layer(x, training=training)
        return self.output_dense(x)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "dtype": dtype_config(self),
            "intermediate_dim": self.intermediate_dim,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
            "kernel_initializer": keras.initializers.serialize(
                self.kernel_initializer
            ),
            "bias_initializer": keras.initializers.serialize(
                self.bias_initializer
            ),
            "seed": self.seed,
        }
