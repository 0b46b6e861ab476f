r"""Shows structures that plain attention confuses.

    python -m experiments.binding_problem

Two attention layers of one head with fixed attention weights read (a/b)/(c/d)
and (a/d)/(c/b) (section 6.2 of the paper). For every binding, prints the
distance between the states of the division between, and the norm of a state.
"""

from absl import flags

from . import _cli

FLAGS = flags.FLAGS

flags.DEFINE_integer("seed", 0, "Seed of the states and the weights.")


def main():
    import numpy as np

    from tpt_keras.analysis.representations import binding_problem
    from tpt_keras.layers import BINDINGS

    print(f"{'binding':10} {'distance':>10} {'norm':>8}")
    for binding in BINDINGS:
        states = binding_problem(binding, FLAGS.seed)
        one, other = states.values()
        distance, norm = (np.linalg.norm(x) for x in (one - other, one))
        print(f"{binding:10} {distance:10.7f} {norm:8.4f}")
    print(f"Distance and norm of the states of {' and '.join(states)}.")


if __name__ == "__main__":
    _cli.run(main)
