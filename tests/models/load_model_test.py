import keras
import numpy as np
import pytest

from tpt_keras.errors import UsageError
from tpt_keras.models import Transformer
from tpt_keras.models.load_model import BEST_MODEL_FILE
from tpt_keras.models.load_model import MODEL_FILE
from tpt_keras.models.load_model import load_model


def test_loads_what_was_saved(tmp_path):
    model = Transformer.from_preset(
        "tp_transformer_tiny", hidden_dim=8, num_heads=2, num_layers=1
    )
    model.save(tmp_path / MODEL_FILE)
    for model_dir in (tmp_path, str(tmp_path)):
        loaded = load_model(model_dir)
        assert type(loaded) is Transformer
        assert loaded.config == model.config
        for weight, other in zip(loaded.weights, model.weights, strict=True):
            np.testing.assert_array_equal(
                *map(keras.ops.convert_to_numpy, (weight, other))
            )


def test_the_best_is_another_one(tmp_path):
    models = {
        name: Transformer.from_preset(
            "tp_transformer_tiny",
            hidden_dim=hidden_dim,
            num_heads=2,
            num_layers=1,
        )
        for name, hidden_dim in ((MODEL_FILE, 8), (BEST_MODEL_FILE, 4))
    }
    for name, model in models.items():
        model.save(tmp_path / name)
    assert load_model(tmp_path).config == models[MODEL_FILE].config
    best = load_model(tmp_path, best=True)
    assert best.config == models[BEST_MODEL_FILE].config


@pytest.mark.parametrize("best", [False, True])
def test_no_folder(tmp_path, best):
    with pytest.raises(UsageError, match=r"no model folder '.*missing'"):
        load_model(tmp_path / "missing", best)


@pytest.mark.parametrize(
    ("best", "missing", "other"),
    [(False, MODEL_FILE, BEST_MODEL_FILE), (True, BEST_MODEL_FILE, MODEL_FILE)],
)
def test_folder_without_the_model(tmp_path, best, missing, other):
    (tmp_path / other).touch()
    with pytest.raises(UsageError) as error:
        load_model(tmp_path, best)
    for part in (str(tmp_path), missing, "experiments.train"):
        assert part in str(error.value)
    assert "\n" not in str(error.value)
