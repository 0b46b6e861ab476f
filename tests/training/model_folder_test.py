import dataclasses
import json
import pathlib

import numpy as np
import pytest

from tests.conftest import MODULE
from tpt_keras.errors import UsageError
from tpt_keras.files import folder_lock
from tpt_keras.models import Transformer
from tpt_keras.models.load_model import load_model
from tpt_keras.models.stored_config import from_stored
from tpt_keras.models.stored_config import to_stored
from tpt_keras.training import model_folder
from tpt_keras.training.training_config import TrainingConfig

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
            {**CONFIG, "training": {"seed": 1, "learning_rate": 1e-4}},
            "training.seed: 0 there, 1 here",
        ),
        # What an older version did not know had its default.
        (
            {**CONFIG, "model": {**CONFIG["model"], "num_heads": 2}},
            "model.num_heads: 8 there, 2 here",
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
    assert model_folder.read_config(tmp_path)["training"] == CONFIG["training"]


@pytest.mark.parametrize("name", ["", "missing"])
def test_reading_what_is_not_there(tmp_path, name):
    with pytest.raises(UsageError) as caught:
        model_folder.read_config(tmp_path / name)
    assert repr(str(tmp_path / name)) in str(caught.value)
    assert "tpt_keras train" in str(caught.value)


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
        b'{"training": {"modules": "numbers__gcd"}}',
        b'{"training": {"modules": [["numbers__gcd"]]}}',
        b'{"training": {"train_steps": "10"}}',
        b'{"training": {"data_dir": null}}',
    ],
)
def test_reading_what_is_damaged(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    for access in (
        lambda: model_folder.read_config(tmp_path),
        lambda: model_folder.check_config(tmp_path, CONFIG),
        lambda: model_folder.ensure_config(tmp_path, CONFIG),
    ):
        with pytest.raises(UsageError, match="damaged") as caught:
            access()
        assert repr(str(tmp_path / "config.json")) in str(caught.value)
        assert "\n" not in str(caught.value)
    assert (tmp_path / "config.json").read_bytes() == content


@pytest.fixture
def of_version_0_2(tmp_path):
    """A folder with the configuration that 0.2.0 wrote, and what it says."""
    golden = pathlib.Path(__file__).parent / "config_0_2_0.json"
    (tmp_path / "config.json").write_text(golden.read_text())
    return tmp_path, json.loads(golden.read_text())


def asked_for(old, **training):
    """The configuration of today's command with the flags of an old one."""
    config = TrainingConfig(**{**old["training"], **training})
    return {
        **old,
        "model": to_stored(from_stored(old["model"])),
        "training": dataclasses.asdict(config),
        "data": {MODULE: "0123456789abcdef"},
    }


def test_a_training_of_version_0_2_goes_on(of_version_0_2):
    folder, old = of_version_0_2
    assert "init_from" not in old["training"]
    assert "data" not in old
    new = asked_for(old)
    model_folder.check_config(folder, new)
    model_folder.ensure_config(folder, new)
    assert model_folder.read_config(folder) == json.loads(json.dumps(new))


def test_a_training_of_version_0_2_with_other_flags(of_version_0_2):
    folder, old = of_version_0_2
    for change, message in (
        ({"init_from": "models/demo"}, "init_from: '' there, models/demo here"),
        ({"module_weights": (3.0, 1.0)}, r"\[2.0, 1.0\] there"),
        # Without a fingerprint, nothing tells that it is the same data.
        ({"data_dir": "elsewhere"}, "data_dir: data there, elsewhere here"),
    ):
        with pytest.raises(UsageError, match=message):
            model_folder.check_config(folder, asked_for(old, **change))


def test_a_training_of_a_newer_version(of_version_0_2):
    folder, old = of_version_0_2
    newer = {**old, "training": {**old["training"], "curriculum": "hard"}}
    (folder / "config.json").write_text(json.dumps(newer))
    with pytest.raises(
        UsageError, match=r"training\.curriculum: hard there, not known here"
    ):
        model_folder.ensure_config(folder, asked_for(old))


def test_data_that_was_moved(of_version_0_2):
    folder, old = of_version_0_2
    model_folder.ensure_config(folder, asked_for(old))
    model_folder.ensure_config(folder, asked_for(old, data_dir="elsewhere"))
    config = model_folder.read_config(folder)
    assert config["training"]["data_dir"] == "elsewhere"


@pytest.mark.parametrize("data_dir", ["data", "elsewhere"])
def test_data_that_was_made_again(of_version_0_2, data_dir):
    folder, old = of_version_0_2
    model_folder.ensure_config(folder, asked_for(old))
    before = model_folder.read_config(folder)
    new = {**asked_for(old, data_dir=data_dir), "data": {MODULE: "fedc"}}
    with pytest.raises(UsageError) as caught:
        model_folder.ensure_config(folder, new)
    message = str(caught.value)
    for part in (MODULE, repr(data_dir), str(folder), "--data_dir"):
        assert part in message
    assert model_folder.read_config(folder) == before


def test_more_steps(of_version_0_2):
    folder, old = of_version_0_2
    (folder / "model.keras").write_text("whole")
    steps = old["training"]["train_steps"]
    assert model_folder.is_finished(folder, asked_for(old))
    longer = asked_for(old, train_steps=2 * steps)
    model_folder.check_config(folder, longer)
    # Nothing was prolonged yet, and it is not finished for that.
    assert model_folder.is_finished(folder, asked_for(old))
    assert not model_folder.is_finished(folder, longer)
    model_folder.ensure_config(folder, longer)
    assert not model_folder.is_finished(folder, longer)
    assert not (folder / "model.keras").exists()
    assert (folder / f"model-{steps}.keras").read_text() == "whole"
    with pytest.raises(UsageError, match="train_steps: 16 there, 8 here"):
        model_folder.check_config(folder, asked_for(old))


def test_more_steps_of_a_schedule_that_ends(of_version_0_2):
    folder, old = of_version_0_2
    old["training"]["schedule"] = "cosine"
    (folder / "config.json").write_text(json.dumps(old))
    with pytest.raises(UsageError) as caught:
        model_folder.ensure_config(folder, asked_for(old, train_steps=9))
    message = str(caught.value)
    assert "train_steps: 8 there, 9 here" in message
    assert "cosine schedule ends" in message
    assert f"--init_from={folder}" in message


def test_one_trains_in_a_folder(tmp_path):
    folder = tmp_path / "model"
    with (
        model_folder.training_lock(folder),
        pytest.raises(UsageError, match=r"process trains in .*model"),
        model_folder.training_lock(folder),
    ):
        pass
    with model_folder.training_lock(folder):
        pass


def test_what_killed_trainings_left_is_removed(tmp_path):
    (tmp_path / "checkpoints" / "ckpt-3_temp").mkdir(parents=True)
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
        "checkpoints/ckpt-3_temp/part-00000-of-00001.index",
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
    assert model_folder.is_finished(tmp_path, CONFIG) == (is_there and not best)
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
