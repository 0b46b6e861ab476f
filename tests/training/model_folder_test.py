import json

import numpy as np
import pytest

from tests.conftest import MODULE
from tpt_keras.errors import UsageError
from tpt_keras.files import folder_lock
from tpt_keras.models import Transformer
from tpt_keras.models.load_model import load_model
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


def save(model, model_dir, best=False):
    if best:
        model_folder.save_best_model(model, model_dir)
    else:
        model_folder.save_finished_model(model, model_dir, CONFIG)


def test_writes_and_reads(tmp_path):
    folder = tmp_path / "not" / "there yet"
    model_folder.ensure_config(folder, CONFIG)
    assert model_folder.read_config(folder) == json.loads(json.dumps(CONFIG))
    assert [path.name for path in folder.iterdir()] == ["config.json"]


def test_the_same_again_is_fine(tmp_path):
    model_folder.ensure_config(tmp_path, CONFIG)
    before = (tmp_path / "config.json").stat()
    # Tuples become JSON's lists, which must not pass for a difference.
    model_folder.ensure_config(tmp_path, CONFIG)
    after = (tmp_path / "config.json").stat()
    # Not all of it: reading changes a time, too.
    assert (after.st_ino, after.st_mtime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
    )


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (
            {**CONFIG, "preset": "transformer"},
            "preset: None there, transformer here",
        ),
        (
            asked_for(seed=1),
            "training.seed: 0 there, 1 here",
        ),
        (
            {**CONFIG, "model": {"hidden_dim": 8, "vocabulary": ["<pad>"]}},
            "model.hidden_dim: 16 there, 8 here; "
            "model.vocabulary: ['<pad>', 'a'] there, ['<pad>'] here",
        ),
    ],
)
def test_another_configuration_is_refused(tmp_path, other, difference):
    model_folder.ensure_config(tmp_path, CONFIG)
    with pytest.raises(UsageError) as caught:
        model_folder.ensure_config(tmp_path, other)
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
            model_folder.ensure_config(tmp_path, CONFIG)
    with pytest.raises(UsageError):
        model_folder.read_config(tmp_path)
    model_folder.ensure_config(tmp_path, CONFIG)
    assert model_folder.read_config(tmp_path) == json.loads(json.dumps(CONFIG))


@pytest.mark.parametrize("name", ["", "missing"])
def test_reading_what_is_not_there(tmp_path, name):
    with pytest.raises(UsageError) as caught:
        model_folder.read_config(tmp_path / name)
    assert caught.value.path == str(tmp_path / name)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"model": ',
        b"\xff\x00",
        b"[" * 100_000,
        b"[]",
        b"3",
        b"null",
        b'{"training": []}',
        b'{"model": 5}',
        b'{"data": "numbers__gcd"}',
        b'{"training": {"data": {"modules": 3}}}',
        b'{"training": {"data": {"modules": ["m"], "data_dir": null}}}',
        b'{"training": {"data": {"modules": ["m"]}, "curriculum": {}}}',
    ],
)
def test_reading_what_is_damaged(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    for access in (
        lambda: model_folder.read_config(tmp_path),
        lambda: model_folder.check_config(tmp_path, CONFIG),
        lambda: model_folder.ensure_config(tmp_path, CONFIG),
    ):
        with pytest.raises(UsageError) as caught:
            access()
        assert repr(str(tmp_path / "config.json")) in str(caught.value)
        assert "\n" not in str(caught.value)
    assert (tmp_path / "config.json").read_bytes() == content


@pytest.mark.parametrize(
    "fields", [{"data_dir": "elsewhere"}, {"on_nan": "rollback"}]
)
def test_fields_that_may_change_are_written_anew(tmp_path, fields):
    model_folder.ensure_config(tmp_path, CONFIG)
    model_folder.ensure_config(tmp_path, asked_for(**fields))
    assert model_folder.read_training(tmp_path).items() >= fields.items()


@pytest.mark.parametrize("data_dir", ["data", "elsewhere"])
def test_other_data_is_refused(tmp_path, data_dir):
    model_folder.ensure_config(tmp_path, CONFIG)
    before = model_folder.read_config(tmp_path)
    with pytest.raises(UsageError) as caught:
        model_folder.ensure_config(
            tmp_path, {**asked_for(data_dir=data_dir), "data": {MODULE: "fedc"}}
        )
    for part in (MODULE, repr(data_dir), str(tmp_path)):
        assert part in str(caught.value)
    assert model_folder.read_config(tmp_path) == before


def test_more_steps_prolong_a_finished_training(tmp_path):
    model_folder.ensure_config(tmp_path, CONFIG)
    (tmp_path / "model.keras").write_text("whole")
    longer = asked_for(train_steps=16)
    model_folder.check_config(tmp_path, longer)
    assert model_folder.is_finished(tmp_path, CONFIG)
    assert not model_folder.is_finished(tmp_path, longer)
    model_folder.ensure_config(tmp_path, longer)
    assert not model_folder.is_finished(tmp_path, longer)
    assert (tmp_path / "model-8.keras").read_text() == "whole"
    with pytest.raises(UsageError):
        model_folder.check_config(tmp_path, CONFIG)


def test_more_steps_of_a_schedule_that_ends_are_refused(tmp_path):
    model_folder.ensure_config(tmp_path, asked_for(schedule="cosine"))
    with pytest.raises(UsageError) as caught:
        model_folder.ensure_config(
            tmp_path, asked_for(schedule="cosine", train_steps=9)
        )
    for part in ("train_steps", "cosine", "init_from", str(tmp_path)):
        assert part in str(caught.value)


def test_one_trains_in_a_folder(tmp_path):
    folder = tmp_path / "model"
    with (
        model_folder.training_lock(folder),
        pytest.raises(UsageError),
        model_folder.training_lock(folder),
    ):
        pass
    with model_folder.training_lock(folder):
        pass


def test_what_killed_trainings_left_is_removed(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    kept = [
        "config.json",
        "model.keras",
        # Another process may be writing it.
        "partial-01234567-evaluation.json",
        "partial-mine.keras",
    ]
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


def test_a_finished_model_loads(tmp_path, tiny_config):
    model = Transformer(tiny_config, name="unusual")
    model_folder.save_finished_model(model, tmp_path, CONFIG)
    assert model_folder.is_finished(tmp_path, CONFIG)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "config.json",
        "model.keras",
    ]
    loaded = load_model(tmp_path)
    assert loaded.name == "unusual"
    assert loaded.config == tiny_config
    for ours, theirs in zip(model.get_weights(), loaded.get_weights()):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
def test_the_best_model_is_not_a_finished_one(tmp_path, tiny_config):
    models = [Transformer(tiny_config) for _ in range(3)]
    save(models[0], tmp_path, best=True)
    assert not model_folder.is_finished(tmp_path, CONFIG)
    # A better one takes its place, and the last one is another file.
    save(models[1], tmp_path, best=True)
    save(models[2], tmp_path)
    assert model_folder.is_finished(tmp_path, CONFIG)
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("best", [False, True])
@pytest.mark.parametrize("is_there", [False, True])
def test_a_crash_leaves_no_half_a_model(
    tmp_path, tiny_config, monkeypatch, is_there, best
):
    """The file under the final name is the new model or the old one."""
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
    assert model_folder.is_finished(tmp_path, CONFIG) == (is_there and not best)
    if is_there:
        np.testing.assert_array_equal(
            load_model(tmp_path, best).get_weights()[0],
            model.get_weights()[0],
        )
    else:
        with pytest.raises(UsageError):
            load_model(tmp_path, best)
    # And the next attempt is not in its way.
    save(model, tmp_path, best)
    np.testing.assert_array_equal(
        load_model(tmp_path, best).get_weights()[0], model.get_weights()[0]
    )
