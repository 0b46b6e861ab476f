"""The flags that say which devices a training runs on."""

from absl import flags

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


def strategy():
    """The strategy that the flags ask for.

    It fixes TensorFlow's devices: before anything else is asked of it.
    """
    from tpt_keras.training.distribution import make_strategy

    values = flags.FLAGS
    return make_strategy(
        values.distribution, values.num_gpus, values.logical_cpus
    )
