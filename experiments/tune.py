r"""Searches for the best variant and recipe.

    tpt_keras tune --flagfile=tune.cfg \
        --modules=numbers__place_value --tuning_dir=searches/place_value

A flag after a flagfile overrides it. The same command resumes a search.
Keras-tuner's variables search on several machines (docs/tuning.md).
"""

from absl import flags

from tpt_keras.errors import UsageError
from tpt_keras.errors import require
from tpt_keras.training.config import TrainingConfig
from tpt_keras.tuning.search_space import OBJECTIVES
from tpt_keras.tuning.search_space import SEARCHED
from tpt_keras.tuning.search_space import TUNERS
from tpt_keras.tuning.search_space import SearchSpace

from . import _flags

FLAGS = flags.FLAGS
RESUMES = True
# Fields of a training that a search defines otherwise or does not have.
NOT_FLAGS = (
    "init_from",
    "text_file",
    "segment_length",
    "train_minutes",
    *SEARCHED,
)

flags.DEFINE_enum("tuner", "random", TUNERS, "The search.")
flags.DEFINE_enum(
    "objective", "val_sequence_accuracy", OBJECTIVES, "The score."
)
flags.DEFINE_integer("max_trials", 10, "Most trials.")
flags.DEFINE_integer(
    "executions_per_trial", 1, "Trainings of a trial, with consecutive seeds."
)
flags.DEFINE_string(
    "tuning_dir", None, "Folder for all results.", required=True
)
_flags.define(SearchSpace, leave_out=("vocabulary",))
_flags.define_training(leave_out=NOT_FLAGS)


def check():
    if FLAGS.tuner == "bayesian":
        require("sklearn", "analysis")


def main():
    strategy = _flags.strategy()
    from tpt_keras.training.questions import QuestionLearner
    from tpt_keras.tuning.tune import tune

    space = SearchSpace(**_flags.values(SearchSpace, ("vocabulary",)))
    # Flags of an optimizer belong to the first that is searched.
    training = TrainingConfig.from_flat(
        space.optimizers[0], **_flags.training_fields(NOT_FLAGS)
    )
    # It refuses too few problems before anything is written.
    QuestionLearner(space.preset(space.variants[0]), training)
    trials = tune(
        space,
        training,
        FLAGS.tuning_dir,
        FLAGS.tuner,
        FLAGS.objective,
        FLAGS.max_trials,
        FLAGS.executions_per_trial,
        strategy,
    )
    if not trials:  # a worker's
        return
    report = f"{FLAGS.tuning_dir}/report.md"
    if all(trial["status"] != "completed" for trial in trials):
        raise UsageError(
            f"All trials failed; {report} has the reasons. Start another "
            "search in another `tuning_dir`.",
            field="tuning_dir",
        )
    print(report)
