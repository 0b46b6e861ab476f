r"""Converts a checkpoint of the authors' code.

    tpt_keras convert_checkpoint --checkpoint=best_eval_model.pt \
        --vocabulary=vocabulary.txt --model_dir=models/released

Needs PyTorch (pip install 'tpt_keras[torch]').
"""

import os

from absl import flags

from tpt_keras.errors import require

FLAGS = flags.FLAGS

flags.DEFINE_string(
    "checkpoint", None, "The released code's checkpoint.", required=True
)
flags.register_validator("checkpoint", os.path.exists, "it does not exist")
flags.DEFINE_string(
    "vocabulary",
    None,
    "Text file with one line: the characters in the order of their token ids, "
    "without the four special symbols.",
)
flags.DEFINE_integer(
    "num_heads", 8, "Number of attention heads, which the file lacks."
)
flags.DEFINE_string("model_dir", None, "Folder for the model.", required=True)


def check():
    require("torch", "torch")


def main():
    from tpt_keras.checkpoints import from_reference
    from tpt_keras.models.configs import to_stored
    from tpt_keras.tokenizers.character_tokenizer import SPECIAL_SYMBOLS
    from tpt_keras.training.state import model_folder

    model = from_reference(FLAGS.checkpoint, FLAGS.num_heads, FLAGS.vocabulary)
    config = {"checkpoint": FLAGS.checkpoint, "model": to_stored(model.config)}
    model_folder.write_config(FLAGS.model_dir, config)
    model_folder.save_model(model, FLAGS.model_dir)
    print(f"{FLAGS.model_dir}: {model.count_params():,} weights")
    if set(model.config.vocabulary) <= set(SPECIAL_SYMBOLS):
        print(
            "The model has no characters and takes no questions. Convert it "
            "with --vocabulary."
        )
