import json
import pathlib
import subprocess
import sys
import tempfile

import pytest
from absl.testing import absltest

from tests.checkpoints.released_vocabulary import CHARACTERS
from tests.checkpoints.released_vocabulary import torchtext_vocabulary

torch = pytest.importorskip(
    "torch", reason="the released checkpoints need tpt_keras[torch]"
)

ROOT = pathlib.Path(__file__).parent.parent.parent
CHECKPOINT = ROOT / "tests" / "golden" / "tp_transformer_small.pt"


def convert(*flags):
    """The finished process of the command."""
    return subprocess.run(
        [sys.executable, "-m", "experiments.convert_checkpoint", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
class ConvertCheckpointTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.dir = pathlib.Path(
            self.enterContext(tempfile.TemporaryDirectory())
        )

    def test_writes_a_model_folder(self):
        from tpt_keras.models.load_model import load_model

        with torchtext_vocabulary() as vocabulary:
            torch.save(
                vocabulary,
                self.dir / "vocab.pt",
                _use_new_zipfile_serialization=False,
            )
        model_dir = self.dir / "models" / "released"
        process = convert(
            f"--checkpoint={CHECKPOINT}",
            f"--vocabulary={self.dir / 'vocab.pt'}",
            "--num_heads=4",
            f"--model_dir={model_dir}",
        )
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertEqual(
            {path.name for path in model_dir.iterdir()},
            {"config.json", "model.keras"},
        )
        config = json.loads((model_dir / "config.json").read_text())
        self.assertEqual(config["model"]["vocabulary_size"], 73)
        model = load_model(model_dir)
        self.assertEqual("".join(model.config.vocabulary[4:]), CHARACTERS)
        self.assertLen(model.solve(["What is 1 + 1?"]), 1)

    def test_wrong_use(self):
        for flags, message in (
            ([], "--checkpoint is missing"),
            ([f"--checkpoint={CHECKPOINT}"], "--model_dir is missing"),
            (
                ["--checkpoint=nowhere.pt", f"--model_dir={self.dir / 'm'}"],
                "There is no checkpoint file 'nowhere.pt'",
            ),
            (
                [
                    f"--checkpoint={CHECKPOINT}",
                    "--num_heads=5",
                    f"--model_dir={self.dir / 'm'}",
                ],
                "num_heads must divide hidden_dim",
            ),
        ):
            with self.subTest(message):
                process = convert(*flags)
                self.assertEqual(process.returncode, 2)
                last_line = process.stderr.splitlines()[-1]
                self.assertStartsWith(last_line, "error: ")
                self.assertIn(message, last_line)
                self.assertFalse((self.dir / "m").exists())
