"""The flags that say which devices a training runs on."""

import os

from absl import flags

from tpt_keras.errors import check_names

# Whoever calls `define` is to have the flags, in his help too.
flags.disclaim_key_flags()


def define(distribution):
    """Defines the flags.

    Args:
        distribution: What the help says of `--distribution`.
    """
    flags.DEFINE_string("distribution", None, distribution)
    flags.DEFINE_integer("num_gpus", None, "GPUs to use. Default: all.")
    flags.DEFINE_integer(
        "logical_cpus",
        None,
        "Devices to cut the CPU into, to try --distribution.",
    )


def strategy(workers=False):
    """The strategy that the flags ask for.

    It fixes TensorFlow's devices: before anything else is asked of it.

    Args:
        workers: Whether several processes may train together. Without, each
            is alone, whatever TF_CONFIG says.

    Returns:
        See `make_strategy`.

    Raises:
        UsageError: See `make_strategy`; and if several processes are asked
            for where they may not.
    """
    from tpt_keras.training.distribution import make_strategy

    values = flags.FLAGS
    if not workers:
        if values.distribution:
            check_names(
                "distribution", [values.distribution], ("none", "mirrored")
            )
        os.environ.pop("TF_CONFIG", None)
    return make_strategy(
        values.distribution, values.num_gpus, values.logical_cpus
    )
