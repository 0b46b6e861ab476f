import numpy as np
from keras import ops

from tpt_keras.layers import TPMultiHeadAttention

_DIM = 16
_SYMBOLS = "abcd/"


def binding_problem(binding, seed=0):
    """Two structures that plain attention makes the same state of.

    The example of section 6.2 of Schlag et al. (2019). Two attentions of one
    head, without feed-forward and layer norm, and where they attend is fixed.
    Of `(a/b)/(c/d)`, in the first layer `a` attends to `b` alone and `c` to
    `d`; in the second, the `/` between attends to `a` and `c`, half and half.
    Of `(a/d)/(c/b)`, `a` attends to `d` and `c` to `b`; all else is the same.

    Args:
        binding: A name in `tpt_keras.layers.BINDINGS`.
        seed: Seed of the symbols' states and of the maps.

    Returns:
        Dict of both expressions to the state of the `/` between, a float32
        array.

    Example:

    >>> states = binding_problem("none")
    >>> list(states)
    ['(a/b)/(c/d)', '(a/d)/(c/b)']
    """
    rng = np.random.default_rng(seed)
    states = dict(
        zip(_SYMBOLS, rng.normal(size=(5, 1, 1, _DIM)).astype("float32"))
    )
    layers = [_attention(binding, rng) for _ in range(2)]

    def attend(layer, state, sources, is_attended):
        mask = np.reshape(is_attended, (1, 1, -1))
        sources = ops.concatenate(sources, axis=1)
        return ops.add(state, layer(state, sources, attention_mask=mask))

    ends = {}
    below = states["b"], states["d"]
    for name, of_a, of_c in (
        ("(a/b)/(c/d)", [True, False], [False, True]),
        ("(a/d)/(c/b)", [False, True], [True, False]),
    ):
        a = attend(layers[0], states["a"], below, of_a)
        c = attend(layers[0], states["c"], below, of_c)
        end = attend(layers[1], states["/"], (a, c), [True, True])
        ends[name] = ops.convert_to_numpy(end)[0, 0]
    return ends


def _attention(binding, rng):
    """One head whose queries attend to all that they are given alike."""
    layer = TPMultiHeadAttention(1, _DIM, use_bias=False, binding=binding)
    layer.build((1, 1, _DIM), (1, None, _DIM))
    for weight in layer.trainable_weights:
        weight.assign(rng.normal(size=weight.shape) * _DIM**-0.5)
    layer.query_dense.set_weights([np.zeros((_DIM, 1, _DIM))])
    return layer
