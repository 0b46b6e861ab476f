"""The optimizer of a training configuration."""

import keras

from tpt_keras.training.pytorch_adam import PyTorchAdam


def learning_rate_schedule(config):
    """The learning rate over time.

    Args:
        config: A `TrainingConfig`.

    Returns:
        A Keras schedule, or a number where the rate is constant.
    """
    if config.schedule == "constant" and not config.warmup_steps:
        return config.learning_rate
    if config.warmup_steps:
        start, warmup_target = 0.0, config.learning_rate
    else:
        start, warmup_target = config.learning_rate, None
    return keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=start,
        warmup_target=warmup_target,
        warmup_steps=config.warmup_steps,
        decay_steps=config.train_steps - config.warmup_steps,
        # A "cosine" that never goes down: constant after the warm-up.
        alpha=1.0 if config.schedule == "constant" else 0.0,
    )


def make_optimizer(config):
    """Adam as the configuration says.

    Args:
        config: A `TrainingConfig`.

    Returns:
        A Keras optimizer.
    """
    return PyTorchAdam(
        learning_rate_schedule(config),
        beta_1=config.beta_1,
        beta_2=config.beta_2,
        epsilon=config.adam_epsilon,
        global_clipnorm=config.global_clipnorm,
    )
