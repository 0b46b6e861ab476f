import keras
import numpy as np
import pytest

from tests.refusals import refused
from tpt_keras.language_model import TransformerXL
from tpt_keras.models import SequenceToSequence

PROBABILITIES = [
    "sparse_categorical_crossentropy",
    "SparseCategoricalCrossentropy",
    "bce",
    keras.losses.sparse_categorical_crossentropy,
    keras.losses.SparseCategoricalCrossentropy(),
    [keras.losses.SparseCategoricalCrossentropy()],
]


@pytest.fixture(scope="module", params=["lstm", "transformer_xl_base"])
def model(request):
    if request.param == "lstm":
        return SequenceToSequence.from_preset("lstm", hidden_dim=8)
    return TransformerXL.from_preset(
        request.param, num_layers=1, hidden_dim=8, num_heads=2
    )


@pytest.mark.parametrize("loss", PROBABILITIES)
def test_a_loss_of_probabilities_is_refused(model, loss):
    with refused("loss"):
        model.compile("adam", loss)


@pytest.mark.parametrize("field", ["metrics", "weighted_metrics"])
@pytest.mark.parametrize(
    "metric", ["ce", keras.metrics.SparseCategoricalCrossentropy()]
)
def test_a_metric_of_probabilities_is_refused(model, metric, field):
    with refused(field):
        model.compile("adam", **{field: ["accuracy", metric]})


@pytest.mark.parametrize(
    "loss",
    [
        None,
        "mse",
        lambda y_true, y_pred: y_pred,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    ],
)
def test_other_losses_are_kept(model, loss):
    model.compile("adam", loss, metrics=["accuracy", lambda y, z: z])
    assert model.loss is loss


def test_a_compiled_model_is_saved_and_loaded(tmp_path):
    model = SequenceToSequence.from_preset("lstm", hidden_dim=8)
    model.compile("adam", run_eagerly=True, jit_compile=False)
    pair = ["1+1"], ["2"]
    model.train_on_batch(*pair)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.iterations == 1
    np.testing.assert_allclose(
        loaded.test_on_batch(*pair), model.test_on_batch(*pair), rtol=1e-6
    )
