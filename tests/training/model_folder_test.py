import json

import numpy as np
import pytest

from tests.conftest import MODULE
from tests.refusals import refused
from tpt_keras.errors import UsageError
from tpt_keras.files import folder_lock
from tpt_keras.models import Transformer
from tpt_keras.models.stored import load_model
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.state import model_folder

TRAINING = TrainingConfig.from_flat(
    modules=[MODULE], train_steps=8, learning_rate=1e-3
)
CONFIG = {
    "preset": None,
    "model": {"hidden_dim": 16, "vocabulary": ("<pad>", "a")},
    "training": TRAINING.to_stored(),
    "data": {MODULE: "0123456789abcdef"},
}


def asked_for(**fields):
    """The configuration of a training with other fields."""
    return {**CONFIG, "training": TRAINING.replace(**fields).to_stored()}


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (
            asked_for(seed=1, batch_size=7),
            "training.batch_size: 1024 there, 7 here; "
            "training.seed: 0 there, 1 here",
        ),
        (
            {**CONFIG, "model": {"hidden_dim": 8, "vocabulary": ["<pad>"]}},
            "model.hidden_dim: 16 there, 8 here; "
            "model.vocabulary: ['<pad>', 'a'] there, ['<pad>'] here",
        ),
        (
            {**CONFIG, "data": {MODULE: "fedc"}},
            f"data.{MODULE}: 0123456789abcdef there, fedc here",
        ),
    ],
)
def test_another_configuration_is_refused(tmp_path, other, difference):
    tmp_path = tmp_path / "not" / "there yet"
    model_folder.write_config(tmp_path, CONFIG)
    with refused(path=tmp_path, part=f"({difference})"):
        model_folder.write_config(tmp_path, other)
    assert model_folder.read_config(tmp_path) == json.loads(json.dumps(CONFIG))


@pytest.mark.parametrize("name", ["", "missing"])
def test_reading_what_is_not_there(tmp_path, name):
    with refused(path=tmp_path / name):
        model_folder.read_config(tmp_path / name)


@pytest.mark.parametrize(
    "content",
    [
        b'{"model": ',
        b"\xff\x00",
        b"[" * 100_000,
        b'{"training": []}',
        b'{"data": "numbers__gcd"}',
        b'{"training": {"data": {"modules": 3}}}',
    ],
)
def test_reading_what_is_damaged(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    for access in (
        lambda: model_folder.read_config(tmp_path),
        lambda: model_folder.check_config(tmp_path, CONFIG),
        lambda: model_folder.write_config(tmp_path, CONFIG),
    ):
        with refused(part=repr(str(tmp_path / "config.json"))):
            access()
    assert (tmp_path / "config.json").read_bytes() == content


@pytest.mark.parametrize(
    "fields", [{"data_dir": "elsewhere"}, {"gradient_accumulation_steps": 2}]
)
def test_fields_that_may_change_are_written_anew(tmp_path, fields):
    model_folder.write_config(tmp_path, CONFIG)
    model_folder.write_config(tmp_path, asked_for(**fields))
    assert model_folder.read_training(tmp_path).items() >= fields.items()


def test_what_killed_trainings_left_is_removed(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    kept = ["config.json", "model.keras"]
    for name in (
        *kept,
        "partial-01234567-config.json",
        "partial-89abcdef-best.keras",
        "partial-89abcdef-metrics.jsonl",
        "checkpoints/partial-89abcdef-ckpt-3.npz",
    ):
        (tmp_path / name).touch()
    with folder_lock(tmp_path, "trains"):
        with pytest.raises(UsageError), model_folder.training_lock(tmp_path):
            pass
        assert (tmp_path / "partial-01234567-config.json").exists()
    with model_folder.training_lock(tmp_path):
        names = [path.name for path in tmp_path.iterdir()]
        assert sorted(names) == sorted([*kept, ".lock", "checkpoints"])
        assert not list((tmp_path / "checkpoints").iterdir())


@pytest.fixture
def model(tiny_config):
    return Transformer(tiny_config, name="unusual", dtype="mixed_bfloat16")


@pytest.mark.parametrize("best", [False, True])
def test_saved_model_is_whole_and_not_compiled(tmp_path, model, best):
    model.compile(optimizer="adam", loss="mse")
    model.optimizer.build(model.trainable_variables)
    model_folder.save_model(model, tmp_path, best)
    [path] = tmp_path.iterdir()
    assert path.name == ("best.keras" if best else "model.keras")
    loaded = load_model(tmp_path, best)
    assert loaded.name == "unusual"
    assert loaded.config == model.config
    assert loaded.dtype_policy.name == "mixed_bfloat16"
    for ours, theirs in zip(loaded.get_weights(), model.get_weights()):
        assert ours.dtype == np.float32
        np.testing.assert_array_equal(ours, theirs)
    weights = sum(weight.nbytes for weight in model.get_weights())
    # Adam's moments would be twice the weights.
    assert path.stat().st_size < 2 * weights + 100_000
