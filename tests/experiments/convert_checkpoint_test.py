import json

import pytest

from tests.checkpoints.released_vocabulary import CHARACTERS
from tests.checkpoints.released_vocabulary import torchtext_vocabulary
from tests.experiments.command import ROOT
from tests.experiments.command import assert_refused
from tests.experiments.command import run_alone

torch = pytest.importorskip(
    "torch", reason="the released checkpoints need tpt_keras[torch]"
)

CHECKPOINT = ROOT / "tests" / "golden" / "tp_transformer_small.pt"


@pytest.mark.slow
def test_writes_a_model_folder(tmp_path):
    from tpt_keras.models.load_model import load_model

    with torchtext_vocabulary() as vocabulary:
        torch.save(
            vocabulary,
            tmp_path / "vocab.pt",
            _use_new_zipfile_serialization=False,
        )
    model_dir = tmp_path / "models" / "released"
    # As a user calls it: without the class that the vocabulary is of.
    result = run_alone(
        "convert_checkpoint",
        f"--checkpoint={CHECKPOINT}",
        f"--vocabulary={tmp_path / 'vocab.pt'}",
        "--num_heads=4",
        f"--model_dir={model_dir}",
    )
    assert result.status == 0, result.stderr
    assert {path.name for path in model_dir.iterdir()} == {
        "config.json",
        "model.keras",
    }
    config = json.loads((model_dir / "config.json").read_text())
    assert config["model"]["vocabulary_size"] == 73
    model = load_model(model_dir)
    assert "".join(model.config.vocabulary[4:]) == CHARACTERS
    assert len(model.solve(["What is 1 + 1?"])) == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--checkpoint is missing"),
        ([f"--checkpoint={CHECKPOINT}"], "--model_dir is missing"),
        (
            ["--checkpoint=nowhere.pt", "--model_dir={}"],
            "There is no checkpoint file 'nowhere.pt'",
        ),
        (
            [f"--checkpoint={CHECKPOINT}", "--num_heads=5", "--model_dir={}"],
            "num_heads must divide hidden_dim",
        ),
    ],
)
def test_wrong_use(run, tmp_path, flags, message):
    model_dir = tmp_path / "m"
    flags = [flag.format(model_dir) for flag in flags]
    assert_refused(run("convert_checkpoint", *flags), message)
    assert not model_dir.exists()
