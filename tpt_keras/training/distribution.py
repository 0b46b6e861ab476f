"""Where a training runs: on one device, on several, on several machines.

The same names on every backend; see the modules for what a strategy is there.
"""

import keras

from tpt_keras.errors import UsageError

if keras.backend.backend() == "tensorflow":
    from tpt_keras.training import tensorflow_distribution as _backend
elif keras.backend.backend() == "jax":
    from tpt_keras.training import jax_distribution as _backend
else:
    raise UsageError(
        "Training needs TensorFlow or JAX. Received: KERAS_BACKEND="
        f"{keras.backend.backend()}."
    )

make_strategy = _backend.make_strategy
default_strategy = _backend.default_strategy
num_replicas = _backend.num_replicas
num_workers = _backend.num_workers
scope = _backend.scope
check_jit_compile = _backend.check_jit_compile
is_chief = _backend.is_chief
of_chief = _backend.of_chief
