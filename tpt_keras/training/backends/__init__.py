"""The training step on each Keras backend, and the devices that it runs on.

Every backend is two modules with the same names. The step:

- `compile_train_step`, `compile_test_step`: compile the step of a `Trainer`
- `Placement`: places the batches of a `Trainer` on its devices

The devices:

- `make_strategy`, `default_strategy`, `scope`, `num_replicas`, `num_workers`
- `check_jit_compile`: refuses devices that cannot compile the step with XLA
- `is_chief`, `broadcast`: several processes; `broadcast` is their barrier
- `start_profile`, `stop_profile`: a profile for TensorBoard
"""

import importlib

import keras

from tpt_keras.errors import UsageError

BACKENDS = ("tensorflow", "jax")

if keras.backend.backend() not in BACKENDS:
    raise UsageError(
        "Training needs the TensorFlow or the JAX backend of Keras. Received: "
        f"KERAS_BACKEND={keras.backend.backend()}. Set KERAS_BACKEND to "
        f"{' or '.join(BACKENDS)}."
    )
_step = importlib.import_module(f"{__name__}.{keras.backend.backend()}")
_devices = importlib.import_module(
    f"{__name__}.{keras.backend.backend()}_devices"
)

Placement = _step.Placement
compile_train_step = _step.compile_train_step
compile_test_step = _step.compile_test_step
make_strategy = _devices.make_strategy
default_strategy = _devices.default_strategy
scope = _devices.scope
num_replicas = _devices.num_replicas
num_workers = _devices.num_workers
check_jit_compile = _devices.check_jit_compile
is_chief = _devices.is_chief
broadcast = _devices.broadcast
start_profile = _devices.start_profile
stop_profile = _devices.stop_profile
