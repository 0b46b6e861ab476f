"""The first steps of a training, on any backend.

    python -m tests.training.first_steps DATA_DIR MODULE

prints them as JSON where TensorFlow is not installed.
"""

import importlib
import json
import pathlib
import sys

NUM_STEPS = 5


def first_steps(data_dir, module):
    """Trains a model whose initial weights do not depend on the backend.

    Returns:
        The trainer and, for every metric of `fit`, its values step by step.
    """
    import numpy as np

    from tpt_keras.models import PRESETS
    from tpt_keras.models import Transformer
    from tpt_keras.training.optimizer import make_optimizer
    from tpt_keras.training.training_config import TrainingConfig
    from tpt_keras.training.training_data import training_batches
    from tpt_keras.training.training_data import training_sources
    from tpt_keras.training.transformer_trainer import TransformerTrainer

    config = TrainingConfig(
        [module],
        str(data_dir),
        train_steps=100,
        batch_size=16,
        validation_examples=20,
        learning_rate=1e-2,
        schedule="cosine",
        warmup_steps=2,
    )
    model_config = PRESETS["tp_transformer_tiny"].replace(
        hidden_dim=16, intermediate_dim=32, num_heads=2, num_layers=1
    )
    transformer = Transformer(model_config)
    rng = np.random.default_rng(7)
    for weight in transformer.weights:
        weight.assign(
            weight.path.endswith("gamma") + 0.2 * rng.normal(size=weight.shape)
        )
    trainer = TransformerTrainer(
        transformer, global_clipnorm=config.global_clipnorm
    )
    trainer.compile(make_optimizer(config), jit_compile="auto")
    batches, _ = training_batches(
        training_sources(config), model_config, config
    )
    history = trainer.fit(
        trainer.feed(batches),
        epochs=NUM_STEPS,
        steps_per_epoch=1,
        shuffle=False,
        verbose=0,
    ).history
    return trainer, {
        name: [float(value) for value in values]
        for name, values in history.items()
    }


def main(data_dir, module):
    import keras

    from tpt_keras.training.evaluate import evaluate

    trainer, steps = first_steps(data_dir, module)
    [evaluation] = evaluate(trainer, [module], ["interpolate"], data_dir, 64)
    [answer] = trainer.transformer.solve(["What is 1 + 1?"])
    # What else has to do without it.
    for name in ("problem_generation", "module_assembly"):
        importlib.import_module(f"tpt_keras.data_generators.{name}")
    assert "tensorflow" not in sys.modules
    result = {"steps": steps, "evaluation": evaluation, "answer": answer}
    json.dump({"backend": keras.backend.backend(), **result}, sys.stdout)


if __name__ == "__main__":
    from tests.training import hidden_tensorflow

    hidden_tensorflow.hide()
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
