"""Searches of tests: a space of tiny models, and oracles without trainings."""

import keras_tuner

from tpt_keras.training.config import TrainingConfig
from tpt_keras.tuning.oracles import make_oracle
from tpt_keras.tuning.search_space import SearchSpace

TINY_SPACE = SearchSpace(
    variants=("transformer", "tp_transformer"),
    num_layers=(1,),
    num_heads=(1, 2),
    schedules=("constant", "cosine"),
    min_weights=3000,
    max_weights=4000,
)


def open_oracle(kind, folder, max_trials=6):
    """An oracle over `TINY_SPACE`, which goes on where it was."""
    hp = keras_tuner.HyperParameters()
    TINY_SPACE.propose(hp, TrainingConfig.from_flat(modules=["m"]))
    objective = keras_tuner.Objective("val_sequence_accuracy", "max")
    oracle = make_oracle(kind, hp, objective, 0, max_trials, max_epochs=4)
    oracle.verbose = 0
    oracle._set_project_dir(str(folder.parent), folder.name)
    if (folder / "oracle.json").exists():
        oracle.reload()
    return oracle
