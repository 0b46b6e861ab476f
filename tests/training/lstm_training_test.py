"""Trainings of the LSTM baselines, by what trains Transformers."""

import json

import pytest

from tpt_keras.errors import UsageError
from tpt_keras.models import PRESETS
from tpt_keras.models.load_model import load_model
from tpt_keras.training.state import model_folder
from tpt_keras.training.train import train

TINY = {"hidden_dim": 8, "encoder_dim": 4, "attention_dim": 4}


@pytest.fixture(scope="module")
def short_training(tiny_training):
    return tiny_training.replace(
        train_steps=2, steps_per_evaluation=1, batch_size=4
    )


@pytest.fixture(scope="module")
def lstm_dir(tmp_path_factory, short_training):
    model_dir = tmp_path_factory.mktemp("lstm")
    config = PRESETS["lstm"].replace(**TINY, thinking_steps=2)
    train(config, short_training, model_dir, preset="lstm")
    return model_dir


@pytest.mark.slow
def test_a_training_leaves_a_model(lstm_dir, short_training):
    config = PRESETS["lstm"].replace(**TINY, thinking_steps=2)
    model = load_model(lstm_dir)
    assert model.config == config
    record = json.loads((lstm_dir / "config.json").read_text())
    assert record["model"]["kind"] == "lstm"
    # There is nothing left to do.
    again = train(config, short_training, lstm_dir, preset="lstm").model
    question = ["What is the tens digit of 31859?"]
    assert again.solve(question) == model.solve(question)


def test_a_folder_is_of_one_kind(lstm_dir, short_training, tiny_config):
    with pytest.raises(UsageError):
        train(tiny_config, short_training, lstm_dir, preset="lstm")


def test_weights_of_another_kind_are_refused(
    lstm_dir, tmp_path, short_training, tiny_config
):
    training = short_training.replace(init_from=str(lstm_dir))
    with pytest.raises(UsageError):
        train(tiny_config, training, tmp_path)
    other = PRESETS["lstm_attention"].replace(**TINY, thinking_steps=2)
    with pytest.raises(UsageError):
        train(other, training, tmp_path)


def test_there_are_no_cells_to_rematerialize(tmp_path, short_training):
    with pytest.raises(UsageError):
        train(
            PRESETS["lstm"],
            short_training.replace(rematerialize=True),
            tmp_path,
        )


@pytest.mark.exhaustive
@pytest.mark.slow
def test_an_attentional_one(tmp_path, short_training):
    config = PRESETS["lstm_attention"].replace(**TINY)
    result = train(config, short_training, tmp_path)
    assert len(result.history) == 2
    assert model_folder.is_finished(tmp_path, {})
