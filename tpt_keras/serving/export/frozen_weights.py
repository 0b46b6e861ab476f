import keras
import tensorflow as tf

# A graph is a protocol buffer, of less than two gigabytes.
MOST_BYTES = 1_500_000_000


class FrozenWeights(keras.StatelessScope):
    """A scope in which a model's weights are constants of TensorFlow's graph.

    oneDNN reorders a matrix of bfloat16 for its processor before it multiplies:
    a constant once, a variable, which may change, again at every product,
    which for a batch of few rows takes longer than the product itself. Other
    dtypes stay variables, for which that was no faster, and so do weights that
    would not fit into a graph.

    Every graph that is traced gets constants of its own, the body of a loop
    too: what comes into it from outside is a constant no more.

    Args:
        model: A Keras model.
    """

    def __init__(self, model):
        super().__init__()
        self._arrays = {}
        self._constants = {}
        variables = [v for v in model.variables if v.dtype == "bfloat16"]
        arrays = [keras.ops.convert_to_numpy(v.value) for v in variables]
        if sum(array.nbytes for array in arrays) <= MOST_BYTES:
            self._arrays = dict(zip(map(id, variables), arrays))

    def get_current_value(self, variable):
        """A constant of the graph that is being traced, for Keras to use."""
        if id(variable) not in self._arrays:
            return None
        key = (tf.compat.v1.get_default_graph(), id(variable))
        if key not in self._constants:
            self._constants[key] = tf.constant(self._arrays[id(variable)])
        return self._constants[key]
