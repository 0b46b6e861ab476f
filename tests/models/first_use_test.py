"""A Keras user's first steps with a model."""

import keras
import numpy as np
import pytest

from tpt_keras.language_model import XL_PRESETS
from tpt_keras.language_model import TransformerXL
from tpt_keras.models import SequenceToSequence
from tpt_keras.models.presets import PRESETS

SMALL = {"hidden_dim": 8, "intermediate_dim": 8, "num_heads": 2}


def small_model(preset):
    if preset in XL_PRESETS:
        sizes = {"num_layers": 1, "vocabulary_size": 9}
        return TransformerXL.from_preset(preset, **sizes)
    if PRESETS[preset].KIND == "lstm":
        return SequenceToSequence.from_preset(preset, hidden_dim=8)
    return SequenceToSequence.from_preset(preset, num_layers=1, **SMALL)


@pytest.mark.parametrize("preset", [*PRESETS, *XL_PRESETS])
def test_summary_shows_every_layer(preset):
    model, lines = small_model(preset), []
    model.summary(
        expand_nested=True, print_fn=lambda text, **_: lines.append(text)
    )
    text = "\n".join(lines)
    for layer in model.layers:
        assert layer.name[:20] in text


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="counts graphs"
)
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
