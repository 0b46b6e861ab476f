"""Sections 6 and 7 of the paper: reconstruction, binding, kept variance."""

import numpy as np
from keras import ops

from tpt_keras.errors import UsageError
from tpt_keras.layers import TPMultiHeadAttention

# The binding problem's number of dimensions and its symbols.
_DIM = 16
_SYMBOLS = "abcd/"
# Limits of the search for rotations.
_MAX_STEPS = 200
_TOLERANCE = 1e-5


def split_by_text(lengths, num_train, seed=0):
    """Splits the characters of texts into a training set and a test set.

    Args:
        lengths: List of the texts' numbers of characters.
        num_train: Number of training characters.
        seed: Seed of the split.

    Returns:
        Two integer arrays of indices: `num_train` characters of some texts,
        and all characters of the other texts, about half of all.

    Raises:
        UsageError: If there are fewer than twice `num_train` characters.
    """
    rows = np.repeat(np.arange(len(lengths)), lengths)
    if 2 * num_train > len(rows):
        raise UsageError(
            f"There are {len(rows)} characters, too few to fit on {num_train} "
            "and to test on as many. Take more problems or fit on fewer "
            "characters."
        )
    rng = np.random.default_rng(seed)
    place = np.argsort(rng.permutation(len(lengths)))[rows]
    in_order = np.argsort(place, kind="stable")
    # The training texts end with a whole text.
    last = place[in_order[len(rows) // 2 - 1]]
    training = np.flatnonzero(place <= last)
    return (
        np.sort(rng.permutation(training)[:num_train]),
        np.flatnonzero(place > last),
    )


def reconstruction_errors(states, values, train, held_out):
    """Fits affine maps from each head's values to the states (section 6.1).

    Args:
        states: Array `(characters, hidden_dim)`.
        values: Array `(characters, num_heads, value_dim)`, maps of the states.
        train: Indices of the characters to fit on.
        held_out: Indices of the test characters.

    Returns:
        Dict of `train` and `held_out`, lists of the mean squared error of
        every head, and `variance`, the error of the training mean on the test
        characters.
    """
    from sklearn.linear_model import LinearRegression

    errors = {"train": [], "held_out": []}
    for head in range(values.shape[1]):
        model = LinearRegression().fit(values[train, head], states[train])
        for name, indices in (("train", train), ("held_out", held_out)):
            predicted = model.predict(values[indices, head])
            errors[name].append(_mean_square(states[indices] - predicted))
    mean = states[train].mean(axis=0)
    return {**errors, "variance": _mean_square(states[held_out] - mean)}


def _mean_square(differences):
    return float(np.mean(np.square(differences)))


def binding_problem(binding, seed=0):
    """Computes the binding problem's example (section 6.2).

    Two attention layers of one head, without feed-forward and layer norm,
    read `(a/b)/(c/d)` and `(a/d)/(c/b)` with fixed attention weights. In the
    first layer `a` attends to its denominator alone, and so does `c`. In the
    second layer the `/` between attends to `a` and `c` equally.

    Args:
        binding: A name in `tpt_keras.layers.BINDINGS`.
        seed: Seed of the symbols' states and of the weights.

    Returns:
        Dict from both expressions to the final state of the `/` between, a
        float32 array. Without binding the two states are equal.

    Example:

    >>> states = binding_problem("none")
    >>> list(states)
    ['(a/b)/(c/d)', '(a/d)/(c/b)']
    """
    rng = np.random.default_rng(seed)
    states = dict(
        zip(_SYMBOLS, rng.normal(size=(5, 1, 1, _DIM)).astype("float32"))
    )
    first, second = (_uniform_attention(binding, rng) for _ in range(2))
    denominators = states["b"], states["d"]
    results = {}
    for name, of_a, of_c in (
        ("(a/b)/(c/d)", [True, False], [False, True]),
        ("(a/d)/(c/b)", [False, True], [True, False]),
    ):
        a = _attend(first, states["a"], denominators, of_a)
        c = _attend(first, states["c"], denominators, of_c)
        result = _attend(second, states["/"], (a, c), [True, True])
        results[name] = ops.convert_to_numpy(result)[0, 0]
    return results


def _attend(layer, state, sources, attention_mask):
    mask = np.reshape(attention_mask, (1, 1, -1))
    sources = ops.concatenate(sources, axis=1)
    return ops.add(state, layer(state, sources, attention_mask=mask))


def _uniform_attention(binding, rng):
    """Builds a random layer of one head with equal attention weights."""
    layer = TPMultiHeadAttention(1, _DIM, use_bias=False, binding=binding)
    layer.build((1, 1, _DIM), (1, None, _DIM))
    for weight in layer.trainable_weights:
        weight.assign(rng.normal(size=weight.shape) * _DIM**-0.5)
    layer.query_dense.set_weights([np.zeros((_DIM, 1, _DIM))])
    return layer


def kept_variance(fillers, roles, train, held_out, seed=0):
    """Computes the variance of tensor products that bindings keep (section 7).

    The tensor products of one head, `filler role^T`, have `value_dim` squared
    numbers. Three compressions keep `value_dim` numbers of them:

    - `diagonal`: the elementwise product of filler and role.
    - `rotated`: the elementwise product of `M^T filler` and `N^T role`, with
      the orthogonal `M` and `N` that keep most.
    - `principal`: the principal components, the best linear compression.

    Args:
        fillers: Array `(characters, value_dim)`.
        roles: Array `(characters, value_dim)`.
        train: Indices of the characters to fit on.
        held_out: Indices of the test characters.
        seed: Seed of the random start of the rotations.

    Returns:
        Dict of the share of the test products' variance, about the training
        products' mean, that each compression keeps.
    """
    fillers, roles = fillers.astype("float64"), roles.astype("float64")
    fitted = fillers[train], roles[train]
    tested = fillers[held_out], roles[held_out]
    identity = np.eye(fillers.shape[1])
    total = _total(fitted, tested)
    return {
        "diagonal": _on_diagonal(fitted, tested, identity, identity) / total,
        "rotated": _on_diagonal(fitted, tested, *rotations(*fitted, seed))
        / total,
        "principal": _in_components(fitted, tested) / total,
    }


def rotations(fillers, roles, seed=0):
    """Finds the rotations whose elementwise products keep most variance.

    The variance on the diagonal is convex in each of the two matrices, so a
    step to the orthogonal factor of its gradient never loses variance (the
    generalized power method; Journee et al., 2010). The steps end in a local
    optimum. The best of three starts is returned.

    Args:
        fillers: Array `(characters, value_dim)`.
        roles: Array `(characters, value_dim)`.
        seed: Seed of the random start.

    Returns:
        The orthogonal matrices `M` and `N`, `(value_dim, value_dim)`.
    """
    dim = fillers.shape[1]
    rng = np.random.default_rng(seed)
    starts = [
        [np.eye(dim), np.eye(dim)],
        [np.linalg.svd(x - x.mean(0))[2].T for x in (fillers, roles)],
        [_orthogonal(rng.normal(size=(dim, dim))) for _ in range(2)],
    ]
    results = [_climb(fillers, roles, *start) for start in starts]
    return max(results, key=lambda result: result[0])[1:]


def _climb(fillers, roles, m, n):
    """Returns the variance reached from a start, and the rotations."""
    rotated_fillers, rotated_roles = fillers @ m, roles @ n
    reached = 0.0
    for _ in range(_MAX_STEPS):
        products = _centered(rotated_fillers * rotated_roles)
        m = _orthogonal(fillers.T @ (products * rotated_roles))
        rotated_fillers = fillers @ m
        products = _centered(rotated_fillers * rotated_roles)
        n = _orthogonal(roles.T @ (products * rotated_fillers))
        rotated_roles = roles @ n
        before, reached = reached, np.sum(np.square(products))
        if reached <= before * (1 + _TOLERANCE):
            break
    return reached, m, n


def _centered(products):
    return products - products.mean(axis=0)


def _orthogonal(matrix):
    """Returns the nearest orthogonal matrix."""
    left, _, right = np.linalg.svd(matrix)
    return left @ right


def _total(fitted, tested):
    """Returns the sum of squares of whole products about the fitted mean."""
    fillers, roles = tested
    mean = fitted[0].T @ fitted[1] / len(fitted[0])
    squares = np.sum(fillers**2, 1) * np.sum(roles**2, 1)
    to_mean = np.einsum("nf,fr,nr->n", fillers, mean, roles)
    return np.sum(squares - 2 * to_mean + np.sum(mean**2))


def _on_diagonal(fitted, tested, m, n):
    mean = np.mean((fitted[0] @ m) * (fitted[1] @ n), axis=0)
    products = (tested[0] @ m) * (tested[1] @ n)
    return np.sum(np.square(products - mean))


def _in_components(fitted, tested):
    """Returns the sum of squares in `value_dim` principal components.

    A kernel PCA avoids whole products: the inner product of two tensor
    products is that of the fillers times that of the roles.
    """
    from sklearn.decomposition import KernelPCA

    def kernel(some, others):
        return (some[0] @ others[0].T) * (some[1] @ others[1].T)

    components = KernelPCA(
        min(fitted[0].shape), kernel="precomputed", eigen_solver="dense"
    ).fit(kernel(fitted, fitted))
    return np.sum(np.square(components.transform(kernel(tested, fitted))))
