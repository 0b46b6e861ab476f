"""The weights of exported models: constants, int8 matrices and checks."""

import uuid

import keras
import tensorflow as tf

from tpt_keras.models.weights import SCALE
from tpt_keras.models.weights import CompressedModel
from tpt_keras.models.weights import finite_values
from tpt_keras.models.weights import weight_name

# A graph is a protocol buffer, which is limited to two gigabytes.
MAX_CONSTANT_BYTES = 1_500_000_000


class ConstantWeights(keras.StatelessScope):
    """A scope in which bfloat16 weights are constants of TensorFlow's graph.

    oneDNN reorders a bfloat16 matrix before it multiplies: a constant once, a
    variable at every product, which for small batches takes longer than the
    product itself. Weights of other dtypes, and weights that do not fit into a
    graph, stay variables.

    Each graph gets its own constants, and so does the body of a loop, because
    the inputs of a loop are not constant. Raises a `UsageError` if a weight is
    NaN or infinite.
    """

    def __init__(self, model):
        super().__init__()
        self._constants = {}
        values = {id(v): finite_values(v) for v in model.variables}
        self._arrays = {
            key: array
            for key, array in values.items()
            if array.dtype == "bfloat16"
        }
        if sum(a.nbytes for a in self._arrays.values()) > MAX_CONSTANT_BYTES:
            self._arrays = {}
        # TensorFlow saves these variables.
        self.saved = [
            variable.value
            for variable in model.variables
            if id(variable) not in self._arrays
        ]

    def get_current_value(self, variable):
        if id(variable) not in self._arrays:
            return None
        key = (tf.compat.v1.get_default_graph(), id(variable))
        if key not in self._constants:
            self._constants[key] = tf.constant(self._arrays[id(variable)])
        return self._constants[key]


class Int8Weights(keras.StatelessScope):
    """A scope in which matrices are read from int8 values with scales.

    The SavedModel stores the int8 values. When it is loaded, they become
    float32 once, so that computing is as fast as with float32 weights.
    Vectors stay the model's variables. Raises a `UsageError` if the model
    cannot be compressed, as `CompressedModel.of` does.
    """

    def __init__(self, model):
        super().__init__()
        arrays = CompressedModel.of(model).arrays
        self._matrices = {}
        vectors = []
        for variable in model.variables:
            name = weight_name(variable)
            if name + SCALE in arrays:
                self._matrices[id(variable)] = _Int8Matrix(
                    arrays[name], arrays[name + SCALE]
                )
            else:
                vectors.append(variable.value)
        matrices = list(self._matrices.values())
        # TensorFlow saves the variables of a resource only if it sees them.
        self.saved = [
            vectors,
            matrices,
            [(matrix.values, matrix.scale) for matrix in matrices],
        ]

    def get_current_value(self, variable):
        matrix = self._matrices.get(id(variable))
        return None if matrix is None else matrix.read()


class _Int8Matrix(tf.saved_model.experimental.TrackableResource):
    """A float32 variable that is initialized from int8 values.

    Its shared name, as that of a TensorFlow table, makes it one resource even
    if a process loads the SavedModel twice.
    """

    def __init__(self, values, scale):
        self.values = tf.Variable(values, trainable=False)
        self.scale = tf.Variable(scale, trainable=False)
        self._shared_name = f"int8_matrix_{uuid.uuid4().hex}"
        super().__init__()
        # Creates it here instead of in the first graph that reads it.
        _ = self.resource_handle
        self._initialize()

    def _create_resource(self):
        return tf.raw_ops.VarHandleOp(
            dtype=tf.float32,
            shape=self.values.shape,
            shared_name=self._shared_name,
        )

    def _initialize(self):
        tf.raw_ops.AssignVariableOp(
            resource=self.resource_handle,
            value=tf.cast(self.values, tf.float32) * self.scale,
        )

    def read(self):
        value = tf.raw_ops.ReadVariableOp(
            resource=self.resource_handle, dtype=tf.float32
        )
        value.set_shape(self.values.shape)
        return value
