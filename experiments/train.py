r"""Trains a model, or goes on with a training.

    tpt_keras train --flagfile=demo.cfg --model_dir=models/demo

A flag after a flagfile overrides it. A language model learns a text:

    tpt_keras train --preset=transformer_xl_base \
        --text_file=text.txt --batch_size=22 --model_dir=models/text
"""

import importlib.util
import pathlib

from absl import flags

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.training.config import TrainingConfig

from . import _flags

FLAGS = flags.FLAGS
RESUMES = True

flags.DEFINE_string("preset", "tp_transformer", "Name of the model's preset.")
flags.DEFINE_string(
    "hparams", "", "Changes to the preset: hidden_dim=256,num_layers=3."
)
flags.DEFINE_string(
    "model_dir",
    None,
    "Folder for checkpoints, logs and the trained model.",
    required=True,
)
_flags.define_training(
    distributions="none, mirrored or multi_worker_mirrored (with TF_CONFIG)"
)


def main():
    strategy = _flags.strategy(workers=True)
    from tpt_keras.language_model import XL_PRESETS
    from tpt_keras.language_model import TextLearner
    from tpt_keras.models import PRESETS
    from tpt_keras.models import TRAINED_PRESETS
    from tpt_keras.training.backends import CurrentBackend
    from tpt_keras.training.questions import QuestionLearner
    from tpt_keras.training.train import train

    presets = PRESETS | XL_PRESETS
    check_choice("preset", FLAGS.preset, presets)
    if FLAGS.preset in TRAINED_PRESETS and not FLAGS.init_from:
        raise UsageError(
            f"The preset {FLAGS.preset} is a trained model. To train it on, "
            f"set `init_from` to {FLAGS.preset}, too. For new weights, take "
            "tp_transformer_numbers.",
            field="preset",
        )
    preset = presets[FLAGS.preset]
    if FLAGS.text_file:
        fields = _flags.values(TrainingConfig)
    else:
        fields = _flags.training_fields()
    train(
        preset.replace(**preset.parse_overrides(FLAGS.hparams)),
        TrainingConfig.from_flat(**fields),
        FLAGS.model_dir,
        preset=FLAGS.preset,
        strategy=strategy,
        learner_class=TextLearner if FLAGS.text_file else QuestionLearner,
    )
    if CurrentBackend(strategy).is_chief:
        draw_curves()


def draw_curves():
    """Draws the learning curves if matplotlib is installed."""
    from tpt_keras.training.state.logs import METRICS_FILE
    from tpt_keras.training.state.logs import read_metrics
    from tpt_keras.training.state.model_folder import LEARNING_CURVES_FILE

    path = pathlib.Path(FLAGS.model_dir, LEARNING_CURVES_FILE)
    metrics = path.with_name(METRICS_FILE)
    if not metrics.exists() or importlib.util.find_spec("matplotlib") is None:
        return
    # A finished training may be in a read-only folder.
    if path.exists() and path.stat().st_mtime >= metrics.stat().st_mtime:
        return
    from tpt_keras.visualization.charts import draw_learning_curves

    draw_learning_curves(read_metrics(FLAGS.model_dir), path)
