"""Models that nobody trained, for the page to show."""

import json

from tpt_keras.models import SequenceToSequence
from tpt_keras.playground.playground import Playground

TINY = {
    "hidden_dim": 16,
    "intermediate_dim": 16,
    "num_heads": 2,
    "num_layers": 2,
    # Steps take most of the time.
    "max_answer_length": 3,
}


def make_playground(folder, preset="tp_transformer_tiny", modules=(), **fields):
    """The `Playground` of a new model.

    Args:
        folder: Folder for the model.
        preset: Name of a preset.
        modules: Names of modules, which its folder says it was trained on.
        **fields: Fields of the preset's configuration to change.
    """
    model = SequenceToSequence.from_preset(preset, **fields)
    model.save(folder / "model.keras")
    (folder / "config.json").write_text(
        json.dumps({"model": {}, "training": {"modules": list(modules)}})
    )
    return Playground(folder, num_answers=3)
