r"""Shows what plain attention cannot tell apart.

    python -m experiments.binding_problem

Two layers of one head with a fixed attention read (a/b)/(c/d) and (a/d)/(c/b)
(section 6.2 of the paper; tpt_keras/analysis/binding_problem.py). Prints how
far the states of the division between are from each other, for every binding.
"""

from absl import flags

from . import _cli

FLAGS = flags.FLAGS

flags.DEFINE_integer("seed", 0, "Seed of the states and the maps.")


def main():
    import numpy as np

    from tpt_keras.analysis.binding_problem import binding_problem
    from tpt_keras.layers import BINDINGS

    print(f"{'binding':10} {'distance':>10} {'length':>8}")
    for binding in BINDINGS:
        states = binding_problem(binding, FLAGS.seed)
        one, other = states.values()
        distance, length = (np.linalg.norm(x) for x in (one - other, one))
        print(f"{binding:10} {distance:10.7f} {length:8.4f}")
    print(f"Distance and length of the states of {' and '.join(states)}.")


if __name__ == "__main__":
    _cli.run(main)
