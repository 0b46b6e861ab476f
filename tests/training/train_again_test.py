"""Trainings that find something in their folder, or start from another's."""

import contextlib
import io
import json
import pathlib
import shutil

import pytest

from tests.training.trainings import assert_same_weights
from tpt_keras.errors import UsageError
from tpt_keras.files import folder_lock
from tpt_keras.models.stored import load_model
from tpt_keras.training import train as train_module
from tpt_keras.training.backends import CurrentBackend
from tpt_keras.training.train import train
from tpt_keras.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("without_graphs")


@pytest.fixture(scope="module", autouse=True)
def unevaluated():
    """Trainings whose evaluations take no time; the first is the best."""
    score = {"loss": 1.0, "sequence_accuracy": 0.5, "token_accuracy": 0.5}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "evaluate_batches", lambda *args: dict(score))
        yield


@pytest.fixture
def unfitted(monkeypatch):
    """Trainings that are over before the first step."""
    monkeypatch.setattr(train_module, "_fit", lambda *args: None)


@pytest.fixture(scope="module")
def training(tiny_training):
    """Three steps, the last of them an interval of its own."""
    return tiny_training.replace(train_steps=3, steps_per_checkpoint=2)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, model_config, training):
    """The folder of a finished training; its best model is not its last."""
    folder = tmp_path_factory.mktemp("finished") / "model"
    with contextlib.redirect_stdout(io.StringIO()):
        train(model_config, training, folder)
    return folder


@pytest.fixture
def folder(finished, tmp_path):
    """A copy of it."""
    return pathlib.Path(shutil.copytree(finished, tmp_path / "copy"))


def contents(folder):
    """Lists what a write to a folder changes, but for the lock of trainings."""
    return {
        path.relative_to(folder): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def test_one_process_at_a_time(folder, model_config, training, logged):
    before = contents(folder)
    with folder_lock(folder, "trains"):
        # Where it is finished, nothing is written, which needs no lock.
        again = train(model_config, training, folder)
        assert "nothing to do" in logged()
        assert_same_weights(again, load_model(folder))
        assert contents(folder) == before
        (folder / "model.keras").unlink()
        with pytest.raises(UsageError):
            train(model_config, training, folder)
        before.pop(pathlib.Path("model.keras"))
        assert contents(folder) == before


def test_workers_share_the_folder(
    folder, model_config, training, monkeypatch, unfitted
):
    """One of them, the chief, has the lock."""
    monkeypatch.setattr(CurrentBackend, "is_chief", False)
    (folder / "model.keras").unlink()
    before = contents(folder)
    with folder_lock(folder, "trains"):
        train(model_config, training, folder)
    assert contents(folder) == before


@pytest.mark.parametrize("best", [True, False])
def test_starts_from_the_weights_of_another(
    folder, tmp_path, model_config, training, unfitted, logged, best
):
    expected = load_model(folder, best)
    if not best:
        (folder / "best.keras").unlink()
    starting = training.replace(init_from=str(folder), seed=5)
    # Fields that no weight's shape depends on may change.
    config = model_config.replace(
        dropout=0.0, max_question_length=50, answer_order="minutes_first"
    )
    model_dir = tmp_path / "model"
    model = train(config, starting, model_dir)
    assert_same_weights(model, expected)
    assert model.config == config
    printed = logged()
    assert f"the {'best' if best else 'last'} model of {folder}" in printed
    record = json.loads((model_dir / "config.json").read_text())
    assert record["training"]["run"]["init_from"] == str(folder)


def test_starts_from_no_other_architecture_or_dtype(
    finished, tmp_path, model_config, simple_config, training
):
    quantized = tmp_path / "quantized"
    quantized.mkdir()
    model = load_model(finished)
    model.quantize("int8")
    model.save(quantized / "best.keras")
    starting = training.replace(init_from=str(finished))
    other = model_config.replace(num_layers=2, binding="none", dropout=0.2)
    with pytest.raises(UsageError) as caught:
        train(other, starting, tmp_path / "model")
    message = str(caught.value)
    for part in (
        str(finished),
        "(binding: hadamard there, none here; num_layers: 1 there, 2 here)",
    ):
        assert part in message
    for config, init_from in (
        (simple_config, finished),
        (model_config, tmp_path / "nothing"),
        (model_config, quantized),
    ):
        with pytest.raises(UsageError):
            train(
                config,
                training.replace(init_from=str(init_from)),
                tmp_path / "model",
            )
    assert not (tmp_path / "model").exists()
