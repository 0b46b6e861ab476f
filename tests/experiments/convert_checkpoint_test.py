import json

from tests.experiments.command import ROOT
from tpt_keras.models.stored import load_model

# Their order in the released file is not published.
CHARACTERS = (
    " 0123456789abcdefghijklmnopqrstuvwxyzACDEFGHILMPRSTW!'()*+,-./:<=>?{}"
)
CHECKPOINT = ROOT / "tests" / "golden" / "tp_transformer_small.pt"


def test_a_model_folder_is_written(run, tmp_path):
    (tmp_path / "vocabulary.txt").write_text(CHARACTERS)
    model_dir = tmp_path / "models" / "released"
    run(
        "convert_checkpoint",
        f"--checkpoint={CHECKPOINT}",
        f"--vocabulary={tmp_path / 'vocabulary.txt'}",
        "--num_heads=4",
        f"--model_dir={model_dir}",
    ).quiet()
    config = json.loads((model_dir / "config.json").read_text())
    assert config["model"]["vocabulary_size"] == 73
    model = load_model(model_dir)
    assert "".join(model.config.vocabulary[4:]) == CHARACTERS
