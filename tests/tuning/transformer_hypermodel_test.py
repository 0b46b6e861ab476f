import keras_tuner
import numpy as np
import pytest

from tests.tuning.searching import TINY_SPACE
from tpt_keras.models.count_weights import count_weights
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.transformer_trainer import TransformerTrainer
from tpt_keras.tuning.transformer_hypermodel import TransformerHyperModel

HYPERMODEL = TransformerHyperModel(
    TINY_SPACE, TrainingConfig.from_flat(modules=["m"], train_steps=100)
)


def test_a_model_is_compiled_and_has_its_weights():
    hp = keras_tuner.HyperParameters()
    trainer = HYPERMODEL.build(hp)
    assert isinstance(trainer, TransformerTrainer)
    assert trainer.compiled
    assert trainer.optimizer.built
    config = trainer.transformer.config
    assert trainer.transformer.count_params() == count_weights(config)
    assert hp.values["variant"] == "transformer"


def test_every_condition_is_declared(tmp_path):
    tuner = keras_tuner.RandomSearch(
        HYPERMODEL, keras_tuner.Objective("val_loss", "min"), directory=tmp_path
    )
    names = {hp.name for hp in tuner.oracle.get_space().space}
    assert {"warmup_share", "adam_learning_rate"} < names


@pytest.mark.slow
def test_hyperband_goes_on_from_weights(tmp_path, without_graphs):
    """It loads them into a model, which must have been built."""
    ids = np.array([[1, 15, 9, 15, 2]] * 4)
    x = {"encoder_token_ids": ids, "decoder_token_ids": ids}
    tuner = keras_tuner.Hyperband(
        HYPERMODEL,
        keras_tuner.Objective("val_loss", "min"),
        max_epochs=2,
        factor=2,
        seed=1,
        directory=tmp_path,
    )
    tuner.search(x, ids, validation_data=(x, ids), verbose=0)
    trials = tuner.oracle.trials.values()
    assert {trial.status for trial in trials} == {"COMPLETED"}
    continued = [
        trial
        for trial in trials
        if "tuner/trial_id" in trial.hyperparameters.values
    ]
    assert continued
    [best] = tuner.get_best_models(1)
    loss = best.evaluate(x, ids, return_dict=True, verbose=0)["loss"]
    assert loss == pytest.approx(tuner.oracle.get_best_trials(1)[0].score)
