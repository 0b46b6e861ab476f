"""The training step and the devices that it runs on, for each Keras backend.

Every backend is a module with the same functions. The step of a `Trainer`:

- `compile_train_step`, `compile_test_step`: the step that `fit` and `evaluate`
  call
- `feed`: batches, placed on the devices

The devices, which a strategy stands for:

- `make_strategy`, `default_strategy`, `scope`, `num_replicas`, `num_workers`
- `is_chief`, `broadcast`: several processes; `broadcast` is their barrier
"""

import keras

from tpt_keras.errors import UsageError

if keras.backend.backend() == "tensorflow":
    from tpt_keras.training.backends import tensorflow as _backend
elif keras.backend.backend() == "jax":
    from tpt_keras.training.backends import jax as _backend
else:
    raise UsageError(
        "Training needs the TensorFlow or the JAX backend of Keras. Received: "
        f"KERAS_BACKEND={keras.backend.backend()}. Set KERAS_BACKEND to "
        "tensorflow or jax."
    )

compile_train_step = _backend.compile_train_step
compile_test_step = _backend.compile_test_step
feed = _backend.feed
make_strategy = _backend.make_strategy
default_strategy = _backend.default_strategy
scope = _backend.scope
num_replicas = _backend.num_replicas
num_workers = _backend.num_workers
is_chief = _backend.is_chief
broadcast = _backend.broadcast
