r"""Turns a released PyTorch checkpoint into a model.

One of the authors' code, into a model's folder:

    python -m experiments.convert_checkpoint --checkpoint=best_eval_model.pt \
        --vocabulary=vocab.pt --model_dir=models/released
"""

from absl import flags

from tpt_keras.errors import UsageError

from . import _cli

FLAGS = flags.FLAGS

flags.DEFINE_string("checkpoint", None, "The released code's checkpoint.")
flags.DEFINE_string(
    "vocabulary",
    None,
    "The released vocab.pt, or a text file of one line: the characters in the "
    "order of their ids, behind the four special symbols.",
)
flags.DEFINE_integer(
    "num_heads", 8, "Number of attention heads, which no checkpoint tells."
)
flags.DEFINE_string("model_dir", None, "Folder for the model.")


def main():
    if not FLAGS.checkpoint:
        raise UsageError("--checkpoint is missing: what shall be converted?")
    if not FLAGS.model_dir:
        raise UsageError("--model_dir is missing: where shall the model go?")
    from tpt_keras.checkpoints import from_reference
    from tpt_keras.models.stored_config import to_stored
    from tpt_keras.tokenizers.vocabulary import SPECIAL_SYMBOLS
    from tpt_keras.training import model_folder

    model = from_reference(
        FLAGS.checkpoint,
        num_heads=FLAGS.num_heads,
        vocabulary=FLAGS.vocabulary,
    )
    config = {
        "checkpoint": FLAGS.checkpoint,
        "model": to_stored(model.config),
    }
    model_folder.save_finished_model(model, FLAGS.model_dir, config)
    print(f"{FLAGS.model_dir}: {model.count_params():,} weights")
    if set(model.config.vocabulary) <= set(SPECIAL_SYMBOLS):
        print(
            "The model knows no characters, so it takes no questions: convert "
            "it with --vocabulary."
        )


if __name__ == "__main__":
    _cli.run(main)
