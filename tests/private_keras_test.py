"""The parts of Keras that the package needs and its documentation lacks.

If a new version of Keras renames it, this test says what has gone.
"""

import keras
import pytest
from keras.src.utils import module_utils

from tpt_keras.layers import Projection


def built_optimizer(optimizer_class):
    optimizer = optimizer_class()
    optimizer.build([keras.Variable([[1.0]], name="kernel")])
    return optimizer


def built_map():
    layer = Projection(3)
    layer.build((None, 4))
    return layer


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (keras.layers.Layer, "_flatten_layers _dtype_policy"),
        (built_map, "_kernel partial_output_shape"),
        (keras.initializers.RandomUniform, "_init_seed"),
        (keras.Model, "_symbolic_build train_function test_function"),
        (
            lambda: built_optimizer(keras.optimizers.Adam),
            "_get_variable_index _momentums _velocities",
        ),
        (
            lambda: built_optimizer(keras.optimizers.Muon),
            "_should_use_adamw _apply_weight_decay _backend_update_step "
            "adam_velocities momentums muon_a muon_b muon_c ns_steps rms_rate",
        ),
        (lambda: module_utils.tensorflow, "_available"),
    ],
)
def test_private_names_are_there(make, names):
    owner = make()
    assert all(hasattr(owner, name) for name in names.split())
