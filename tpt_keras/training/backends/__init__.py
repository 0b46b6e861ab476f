"""The training step and the devices that it runs on, for each Keras backend.

Every backend is a module with the same functions. The step of a `Trainer`:

- `compile_train_step`, `compile_test_step`: the step that `fit` and `evaluate`
  call
- `feed`: batches, placed on the devices
- `fused_adam`: a step of `PyTorchAdam` for one variable, in one pass; `None` on
  JAX, whose compiler makes one pass of many operations

The devices, which a strategy stands for:

- `make_strategy`, `default_strategy`, `scope`, `num_replicas`, `num_workers`
- `is_chief`, `broadcast`: several processes; `broadcast` is their barrier
"""

import contextlib
import importlib
import sys

import keras

from tpt_keras.errors import check_choice

check_choice(
    "KERAS_BACKEND", keras.backend.backend(), ("jax", "tensorflow", "torch")
)
if keras.backend.backend() != "tensorflow" and "tensorflow" not in sys.modules:
    # Keras would import it to set a seed and to save a model.
    with contextlib.suppress(ImportError):
        from keras.src.utils import module_utils

        module_utils.tensorflow._available = False

_backend = importlib.import_module(f"{__name__}.{keras.backend.backend()}")

compile_train_step = _backend.compile_train_step
compile_test_step = _backend.compile_test_step
feed = _backend.feed
fused_adam = _backend.fused_adam
make_strategy = _backend.make_strategy
default_strategy = _backend.default_strategy
scope = _backend.scope
num_replicas = _backend.num_replicas
num_workers = _backend.num_workers
is_chief = _backend.is_chief
broadcast = _backend.broadcast
