"""The training step and the devices that it runs on, for each Keras backend.

`CurrentBackend` is the `Backend` of the current Keras backend, and
`make_strategy` makes its strategies.
"""

import contextlib
import sys

import keras

from tpt_keras.errors import check_choice
from tpt_keras.training.backends.backend import Backend

check_choice(
    "KERAS_BACKEND", keras.backend.backend(), ("jax", "tensorflow", "torch")
)
if keras.backend.backend() != "tensorflow" and "tensorflow" not in sys.modules:
    # Keras would import it to set a seed and to save a model.
    with contextlib.suppress(ImportError):
        from keras.src.utils import module_utils

        module_utils.tensorflow._available = False

CurrentBackend: type[Backend]
if keras.backend.backend() == "tensorflow":
    from tpt_keras.training.backends.tensorflow import TensorFlowBackend
    from tpt_keras.training.backends.tensorflow import make_strategy

    CurrentBackend = TensorFlowBackend
elif keras.backend.backend() == "jax":
    from tpt_keras.training.backends.jax import JaxBackend
    from tpt_keras.training.backends.jax import make_strategy

    CurrentBackend = JaxBackend
else:
    from tpt_keras.training.backends.torch import TorchBackend
    from tpt_keras.training.backends.torch import make_strategy

    CurrentBackend = TorchBackend

__all__ = ["CurrentBackend", "make_strategy"]
