"""The optimizer of a training configuration."""

import math

import keras
from keras import ops

from tpt_keras.training.muon import Muon
from tpt_keras.training.pytorch_adam import PyTorchAdam


def learning_rate_schedule(config):
    """The learning rate over time.

    Args:
        config: A `TrainingConfig`.

    Returns:
        A Keras schedule; or a number where the rate is constant, or follows
        the time: see `learning_rate_in_time`.
    """
    is_constant = config.schedule == "constant" and not config.warmup_steps
    if is_constant or config.train_minutes:
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


def learning_rate_in_time(config, step, minutes):
    """The learning rate of a training that ends with its time.

    Its warm-up goes by steps, its decay by time.

    Args:
        config: A `TrainingConfig` with `train_minutes`.
        step: Steps so far.
        minutes: Minutes so far.

    Returns:
        Float.
    """
    rate = config.learning_rate
    if step < config.warmup_steps:
        rate *= step / config.warmup_steps
    if config.schedule == "cosine":
        share = min(1.0, minutes / config.train_minutes)
        rate *= (1.0 + math.cos(math.pi * share)) / 2.0
    return rate


def make_optimizer(config):
    """The optimizer that the configuration names.

    It does not clip: that is done where the whole gradient is known, in
    `TransformerTrainer`. Weight decay is decoupled from the gradient, so that
    `"adam"` with one is AdamW, and spares biases, layer norms and the
    embedding.

    Args:
        config: A `TrainingConfig`.

    Returns:
        A Keras optimizer.
    """
    schedule = learning_rate_schedule(config)
    decay = config.weight_decay or None
    betas = {"beta_1": config.beta_1, "beta_2": config.beta_2}
    if config.optimizer == "muon":
        optimizer = Muon(
            schedule,
            weight_decay=decay,
            epsilon=config.adam_epsilon,
            adam_weight_decay=decay,
            **{f"adam_{name}": beta for name, beta in betas.items()},
        )
    elif config.optimizer == "lion":
        optimizer = keras.optimizers.Lion(schedule, weight_decay=decay, **betas)
    else:
        optimizer = PyTorchAdam(
            schedule,
            epsilon=config.adam_epsilon,
            weight_decay=decay,
            **betas,
        )
    optimizer.exclude_from_weight_decay(
        var_names=["bias", "gamma", "beta", "embeddings"]
    )
    return optimizer


def learning_rate(optimizer):
    """The learning rate that an optimizer has now.

    Args:
        optimizer: A Keras optimizer, on one device or several.

    Returns:
        Float.
    """
    # Zero is added to make a tensor of what may be a variable of replicas.
    return float(ops.add(optimizer.learning_rate, 0.0))
