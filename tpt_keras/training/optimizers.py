"""Optimizers, their hyperparameters and their learning rates over time.

A new optimizer is one more class here and its row in `OPTIMIZERS`. Keras is
imported where an optimizer is built: the commands read these fields before
they load a backend.
"""

import dataclasses
import math

from tpt_keras.settings import check_settings
from tpt_keras.settings import setting

SCHEDULES = ("constant", "cosine")


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """Hyperparameters that every optimizer has.

    Args:
        learning_rate: Peak learning rate.
        schedule: `"constant"`, or `"cosine"`: decays to zero at the last step,
            or when the `train_minutes` are over.
        warmup_steps: Steps over which the learning rate rises from zero.
        weight_decay: Decoupled weight decay: the share of a weight, times the
            learning rate, that a step subtracts.
        global_clipnorm: Norm that the whole gradient is clipped at.
    """

    learning_rate: float = setting(1e-4, above=0)
    schedule: str = setting("constant", choices=SCHEDULES)
    warmup_steps: int = setting(0, minimum=0)
    weight_decay: float = setting(0.0, minimum=0, below=1)
    global_clipnorm: float = setting(0.1, above=0)

    def __post_init__(self):
        check_settings(self)

    def build(self, learning_rate):
        """Builds the Keras optimizer.

        Args:
            learning_rate: Float or a Keras schedule.

        Returns:
            A Keras optimizer that does not clip.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Adam(OptimizerConfig):
    """Adam as PyTorch, and so the paper, computes it.

    Args:
        beta_1: Decay rate of the first moment.
        beta_2: Decay rate of the second moment.
        adam_epsilon: Adam's epsilon.
    """

    beta_1: float = setting(0.9, minimum=0, below=1)
    beta_2: float = setting(0.995, minimum=0, below=1)
    adam_epsilon: float = setting(1e-8, minimum=0, below=1)

    def build(self, learning_rate):
        from tpt_keras.training.keras_optimizers import PyTorchAdam

        return PyTorchAdam(
            learning_rate,
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            epsilon=self.adam_epsilon,
            weight_decay=self.weight_decay or None,
        )


@dataclasses.dataclass(frozen=True)
class AdamW(Adam):
    """Adam with weight decay."""

    weight_decay: float = setting(0.01, above=0, below=1)


@dataclasses.dataclass(frozen=True)
class Muon(Adam):
    """Muon for matrices, AdamW for all other weights."""

    def build(self, learning_rate):
        from tpt_keras.training.keras_optimizers import Muon as KerasMuon

        return KerasMuon(
            learning_rate,
            weight_decay=self.weight_decay or None,
            adam_weight_decay=self.weight_decay or None,
            adam_beta_1=self.beta_1,
            adam_beta_2=self.beta_2,
            epsilon=self.adam_epsilon,
        )


@dataclasses.dataclass(frozen=True)
class Lion(OptimizerConfig):
    """Lion (Chen et al. 2023): the sign of an averaged gradient.

    Args:
        beta_1: Share of the average in a step.
        beta_2: Decay rate of the average.
    """

    beta_1: float = setting(0.9, minimum=0, below=1)
    beta_2: float = setting(0.995, minimum=0, below=1)

    def build(self, learning_rate):
        import keras

        return keras.optimizers.Lion(
            learning_rate,
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            weight_decay=self.weight_decay or None,
        )


OPTIMIZERS = {"adam": Adam, "adamw": AdamW, "muon": Muon, "lion": Lion}


def learning_rate_schedule(config):
    """Returns the learning rate over steps.

    Args:
        config: A `TrainingConfig`.

    Returns:
        A Keras schedule; a number if the rate is constant, or follows the
        time as `learning_rate_in_time` does.
    """
    import keras

    optimizer = config.optimizer
    is_constant = optimizer.schedule == "constant" and not (
        optimizer.warmup_steps
    )
    if is_constant or config.run.train_minutes:
        return optimizer.learning_rate
    if optimizer.warmup_steps:
        start, warmup_target = 0.0, optimizer.learning_rate
    else:
        start, warmup_target = optimizer.learning_rate, None
    return keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=start,
        warmup_target=warmup_target,
        warmup_steps=optimizer.warmup_steps,
        decay_steps=config.run.train_steps - optimizer.warmup_steps,
        # Without decay, this is the warm-up of a constant rate.
        alpha=1.0 if optimizer.schedule == "constant" else 0.0,
    )


def learning_rate_in_time(config, step, minutes):
    """Returns the learning rate of a training with a time limit.

    The warm-up is counted in steps, the decay in time.

    Args:
        config: A `TrainingConfig` with `train_minutes`.
        step: Steps so far.
        minutes: Minutes so far.

    Returns:
        Float.
    """
    optimizer = config.optimizer
    rate = optimizer.learning_rate
    if step < optimizer.warmup_steps:
        rate *= step / optimizer.warmup_steps
    if optimizer.schedule == "cosine":
        share = min(1.0, minutes / config.run.train_minutes)
        rate *= (1.0 + math.cos(math.pi * share)) / 2.0
    return rate


def make_optimizer(config):
    """Builds the optimizer of a training.

    It does not clip: the training step clips, which has the gradient of the
    whole batch. Weight decay spares biases, layer norms and the embedding.

    Args:
        config: A `TrainingConfig`.

    Returns:
        A Keras optimizer.
    """
    optimizer = config.optimizer.build(learning_rate_schedule(config))
    optimizer.exclude_from_weight_decay(
        var_names=["bias", "gamma", "beta", "embeddings"]
    )
    return optimizer


def learning_rate(optimizer):
    """Returns an optimizer's current learning rate.

    Args:
        optimizer: A Keras optimizer, on one device or several.

    Returns:
        Float.
    """
    from keras import ops

    # Adding zero turns a variable of several replicas into a tensor.
    return float(ops.add(optimizer.learning_rate, 0.0))
