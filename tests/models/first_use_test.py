"""A Keras user's first steps with a model."""

import keras
import numpy as np
import pytest

from tpt_keras.language_model import XL_PRESETS
from tpt_keras.language_model import TransformerXL
from tpt_keras.models import SequenceToSequence
from tpt_keras.models.presets import PRESETS

# There, compiling takes longer than a few steps.
ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
SMALL = {"hidden_dim": 8, "intermediate_dim": 8, "num_heads": 2}


def small_model(preset):
    if preset in XL_PRESETS:
        sizes = {"num_layers": 1, "vocabulary_size": 9}
        return TransformerXL.from_preset(preset, **sizes)
    if PRESETS[preset].KIND == "lstm":
        return SequenceToSequence.from_preset(preset, hidden_dim=8)
    return SequenceToSequence.from_preset(
        preset, load_weights=False, num_layers=1, **SMALL
    )


@pytest.mark.parametrize(
    "preset",
    [
        "tp_transformer_tensor",
        "tp_transformer_multi_linear",
        "lstm",
        "lstm_attention",
        "transformer_xl_base",
        "tensorized_transformer",
    ],
)
def test_keras_utilities_take_every_kind_of_model(preset):
    model, lines = small_model(preset), []
    model.summary(
        expand_nested=True, print_fn=lambda text, **_: lines.append(text)
    )
    text = "\n".join(lines)
    for layer in model.layers:
        assert layer.name[:20] in text
    clone = keras.models.clone_model(model)
    assert clone.config == model.config
    assert clone.count_params() == model.count_params() > 0
    assert model.get_layer(model.layers[0].name) is model.layers[0]
    names = ["encoder_token_ids", "decoder_token_ids"]
    inputs = {name: keras.Input((5,), name=name) for name in names}
    shape = dict.fromkeys(names, (None, 5))
    if preset in XL_PRESETS:
        inputs, shape = inputs[names[0]], shape[names[0]]
    outputs = model(inputs)
    assert model.compute_output_shape(shape) == outputs.shape
    assert keras.Model(inputs, outputs).count_params() == model.count_params()


@pytest.mark.skipif(not ON_TENSORFLOW, reason="counts graphs")
def test_first_fit_traces_the_step_once():
    traces = []

    def loss(y_true, y_pred):
        traces.append(y_pred)
        return keras.losses.sparse_categorical_crossentropy(
            y_true, y_pred, from_logits=True
        )

    model = small_model("tp_transformer")
    model.compile("adam", loss)
    ids = np.ones((4, 3), "int32")
    inputs = {"encoder_token_ids": ids, "decoder_token_ids": ids}
    model.fit(inputs, ids, batch_size=2, verbose=0)
    assert len(traces) == 1
