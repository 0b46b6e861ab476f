import json

import numpy as np
import pytest

from tpt_keras.errors import UsageError
from tpt_keras.models import Transformer
from tpt_keras.models.load_model import load_model
from tpt_keras.training import model_folder

CONFIG = {
    "preset": None,
    "model": {"hidden_dim": 16, "vocabulary": ("<pad>", "a")},
    "training": {"seed": 0, "learning_rate": 1e-4},
}


def save(model, model_dir, best=False):
    if best:
        model_folder.save_best_model(model, model_dir)
    else:
        model_folder.save_finished_model(model, model_dir, CONFIG)


def test_writes_and_reads(tmp_path):
    folder = tmp_path / "not" / "there yet"
    model_folder.write_config(folder, CONFIG)
    assert model_folder.read_config(folder) == json.loads(json.dumps(CONFIG))
    assert [path.name for path in folder.iterdir()] == ["config.json"]


def test_the_same_again_is_fine(tmp_path):
    model_folder.write_config(tmp_path, CONFIG)
    before = (tmp_path / "config.json").stat()
    # Tuples become JSON's lists, which must not pass for a difference.
    model_folder.write_config(tmp_path, CONFIG)
    assert (tmp_path / "config.json").stat() == before


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (
            {**CONFIG, "preset": "transformer"},
            "preset: None there, transformer here",
        ),
        (
            {**CONFIG, "training": {"seed": 1, "learning_rate": 1e-4}},
            "training.seed: 0 there, 1 here",
        ),
        (
            {**CONFIG, "training": {"seed": 0}},
            "training.learning_rate: 0.0001 there, None here",
        ),
        (
            {**CONFIG, "model": {**CONFIG["model"], "num_heads": 2}},
            "model.num_heads: None there, 2 here",
        ),
        (
            {**CONFIG, "model": {"hidden_dim": 8, "vocabulary": ["<pad>"]}},
            "model.hidden_dim: 16 there, 8 here; "
            "model.vocabulary: ['<pad>', 'a'] there, ['<pad>'] here",
        ),
    ],
)
def test_another_configuration_is_refused(tmp_path, other, difference):
    model_folder.write_config(tmp_path, CONFIG)
    with pytest.raises(UsageError) as caught:
        model_folder.write_config(tmp_path, other)
    message = str(caught.value)
    assert f"({difference})" in message
    assert repr(str(tmp_path)) in message
    assert "\n" not in message
    assert model_folder.read_config(tmp_path) == json.loads(json.dumps(CONFIG))


def test_an_interrupted_write_leaves_no_configuration(tmp_path, monkeypatch):
    def write_half(self, text):
        with self.open("w") as file:
            file.write(text[:10])
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.write_text", write_half)
        with pytest.raises(OSError, match="full"):
            model_folder.write_config(tmp_path, CONFIG)
    with pytest.raises(UsageError):
        model_folder.read_config(tmp_path)
    model_folder.write_config(tmp_path, CONFIG)
    assert model_folder.read_config(tmp_path)["training"] == CONFIG["training"]


@pytest.mark.parametrize("name", ["", "missing"])
def test_reading_what_is_not_there(tmp_path, name):
    with pytest.raises(UsageError) as caught:
        model_folder.read_config(tmp_path / name)
    assert repr(str(tmp_path / name)) in str(caught.value)
    assert "experiments.train" in str(caught.value)


def test_reading_what_is_damaged(tmp_path):
    (tmp_path / "config.json").write_text('{"model": ')
    with pytest.raises(UsageError) as caught:
        model_folder.read_config(tmp_path)
    assert repr(str(tmp_path / "config.json")) in str(caught.value)


def test_a_finished_model_loads(tmp_path, tiny_config):
    model = Transformer(tiny_config, name="unusual")
    model_folder.save_finished_model(model, tmp_path, CONFIG)
    assert model_folder.is_finished(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "config.json",
        "model.keras",
    ]
    loaded = load_model(tmp_path)
    assert loaded.name == "unusual"
    assert loaded.config == tiny_config
    for ours, theirs in zip(model.get_weights(), loaded.get_weights()):
        np.testing.assert_array_equal(ours, theirs)


def test_the_best_model_is_not_a_finished_one(tmp_path, tiny_config):
    models = [Transformer(tiny_config) for _ in range(3)]
    save(models[0], tmp_path, best=True)
    assert not model_folder.is_finished(tmp_path)
    # A better one takes its place, and the last one is another file.
    save(models[1], tmp_path, best=True)
    save(models[2], tmp_path)
    assert model_folder.is_finished(tmp_path)
    for best, model in ((True, models[1]), (False, models[2])):
        np.testing.assert_array_equal(
            load_model(tmp_path, best).get_weights()[0], model.get_weights()[0]
        )


@pytest.mark.parametrize("best", [False, True])
def test_the_precision_is_kept(tmp_path, tiny_config, best):
    model = Transformer(tiny_config, dtype="mixed_bfloat16")
    save(model, tmp_path, best)
    loaded = load_model(tmp_path, best)
    assert loaded.dtype_policy.name == "mixed_bfloat16"
    # And the weights are whole ones.
    for ours, theirs in zip(model.get_weights(), loaded.get_weights()):
        assert theirs.dtype == np.float32
        np.testing.assert_array_equal(ours, theirs)


def test_the_optimizer_is_left_out(tmp_path, tiny_config):
    model = Transformer(tiny_config)
    model_folder.save_finished_model(model, tmp_path / "bare", CONFIG)
    model.compile(optimizer="adam", loss="mse")
    model.optimizer.build(model.trainable_variables)
    model_folder.save_finished_model(model, tmp_path / "compiled", CONFIG)
    assert model.optimizer is not None
    sizes = [
        (tmp_path / name / "model.keras").stat().st_size
        for name in ("bare", "compiled")
    ]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.02)


@pytest.mark.parametrize("best", [False, True])
@pytest.mark.parametrize("is_there", [False, True])
def test_a_crash_leaves_no_half_a_model(
    tmp_path, tiny_config, monkeypatch, is_there, best
):
    """What is under the final name is whole, or what was there before."""
    model = Transformer(tiny_config)
    if is_there:
        save(model, tmp_path, best)
    save_whole = Transformer.save

    def save_and_crash(self, path, *args, **kwargs):
        save_whole(self, path, *args, **kwargs)
        with open(path, "r+b") as file:
            file.truncate(1000)
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Transformer, "save", save_and_crash)
        with pytest.raises(OSError, match="full"):
            save(Transformer(tiny_config), tmp_path, best)
    assert model_folder.is_finished(tmp_path) == (is_there and not best)
    if is_there:
        np.testing.assert_array_equal(
            load_model(tmp_path, best).get_weights()[0],
            model.get_weights()[0],
        )
    else:
        with pytest.raises(UsageError, match=r"no (best|finished) model"):
            load_model(tmp_path, best)
    # And the next attempt is not in its way.
    save(model, tmp_path, best)
    np.testing.assert_array_equal(
        load_model(tmp_path, best).get_weights()[0], model.get_weights()[0]
    )
