import dataclasses

from tpt_keras.models import PRESETS
from tpt_keras.models.stored_config import to_stored
from tpt_keras.training.training_config import TrainingConfig
from tpt_keras.tuning.flagfile import flagfile


def test_of_an_lstm():
    record = {
        "preset": "lstm_attention",
        "model": to_stored(PRESETS["lstm_attention"].replace(hidden_dim=8)),
        "training": dataclasses.asdict(TrainingConfig(["m"])),
    }
    assert flagfile(record) == (
        "--preset=lstm_attention\n--hparams=hidden_dim=8\n--modules=m\n"
    )
