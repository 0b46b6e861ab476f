from tpt_keras.models import PRESETS
from tpt_keras.models.stored_config import to_stored
from tpt_keras.training.config import TrainingConfig
from tpt_keras.tuning.flagfile import flagfile


def test_of_an_lstm():
    record = {
        "preset": "lstm_attention",
        "model": to_stored(PRESETS["lstm_attention"].replace(hidden_dim=8)),
        "training": TrainingConfig.from_flat(modules=["m"]).to_stored(),
    }
    assert flagfile(record) == (
        "--preset=lstm_attention\n--hparams=hidden_dim=8\n--modules=m\n"
    )


def test_of_options():
    model = PRESETS["tp_transformer_relative"].replace(
        attention_options={"max_distance": 8}
    )
    record = {
        "preset": "tp_transformer_relative",
        "model": to_stored(model),
        "training": TrainingConfig.from_flat(modules=["m"]).to_stored(),
    }
    [hparams] = [
        line.removeprefix("--hparams=")
        for line in flagfile(record).splitlines()
        if line.startswith("--hparams=")
    ]
    preset = PRESETS["tp_transformer_relative"]
    assert preset.replace(**preset.parse_overrides(hparams)) == model
