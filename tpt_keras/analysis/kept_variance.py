"""What an elementwise product keeps of a tensor product (section 7)."""

import numpy as np

# Of the search for rotations: at most so many steps, and it ends with one that
# keeps no more than this share above what was kept before.
_MAX_STEPS = 200
_TOLERANCE = 1e-5


def kept_variance(fillers, roles, train, held_out, seed=0):
    """How much of the products' variance is left in as many dimensions.

    Of the tensor products `filler role^T` of one head, `value_dim` squared
    numbers each, three ways to keep `value_dim` numbers: their diagonal, which
    is the elementwise product; the diagonal of `M^T filler role^T N`, which is
    the elementwise product of the rotated `M^T filler` and `N^T role`, of the
    orthogonal `M` and `N` that keep most; and the principal components, which
    keep as much as any `value_dim` numbers can.

    Rotations and components are fitted on some cells and checked with others.

    Args:
        fillers: Array `(cells, value_dim)`.
        roles: Array `(cells, value_dim)`.
        train: Indices of the cells to fit on.
        held_out: Indices of the others.
        seed: Seed of where the rotations start.

    Returns:
        Dict of the shares of the variance of the held-out products, about the
        train products' mean: `diagonal`, `rotated` and `principal`.
    """
    fitted = fillers[train].astype("float64"), roles[train].astype("float64")
    checked = (
        fillers[held_out].astype("float64"),
        roles[held_out].astype("float64"),
    )
    identity = np.eye(fillers.shape[1])
    total = _total(fitted, checked)
    return {
        "diagonal": _on_diagonal(fitted, checked, identity, identity) / total,
        "rotated": _on_diagonal(fitted, checked, *rotations(*fitted, seed))
        / total,
        "principal": _in_components(fitted, checked) / total,
    }


def rotations(fillers, roles, seed=0):
    """The rotations whose elementwise products keep most variance.

    Of orthogonal `M` and `N`, by steps that each keep more than the one
    before: the variance on the diagonal is convex in each of the two, and what
    is convex grows towards the orthogonal factor of its gradient (the
    generalized power method; Journee et al., 2010). It ends in a best one of
    its surroundings: the best of three starts is taken.

    Args:
        fillers: Array `(cells, value_dim)`.
        roles: Array `(cells, value_dim)`.
        seed: Seed of the start that is drawn.

    Returns:
        The matrices `M` and `N`, `(value_dim, value_dim)`.
    """
    dim = fillers.shape[1]
    rng = np.random.default_rng(seed)
    starts = [
        [np.eye(dim), np.eye(dim)],
        [np.linalg.svd(x - x.mean(0))[2].T for x in (fillers, roles)],
        [_orthogonal(rng.normal(size=(dim, dim))) for _ in range(2)],
    ]
    ended = [_climb(fillers, roles, *start) for start in starts]
    return max(ended, key=lambda end: end[0])[1:]


def _climb(fillers, roles, m, n):
    """The variance that is reached from a start, and the rotations."""
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
    """The orthogonal matrix nearest to a matrix."""
    left, _, right = np.linalg.svd(matrix)
    return left @ right


def _total(fitted, checked):
    """Squared distances of whole products from the fitted ones' mean."""
    fillers, roles = checked
    mean = fitted[0].T @ fitted[1] / len(fitted[0])
    squares = np.sum(fillers**2, 1) * np.sum(roles**2, 1)
    to_mean = np.einsum("nf,fr,nr->n", fillers, mean, roles)
    return np.sum(squares - 2 * to_mean + np.sum(mean**2))


def _on_diagonal(fitted, checked, m, n):
    mean = np.mean((fitted[0] @ m) * (fitted[1] @ n), axis=0)
    products = (checked[0] @ m) * (checked[1] @ n)
    return np.sum(np.square(products - mean))


def _in_components(fitted, checked):
    """Squares of as many principal components as there are dimensions.

    The products themselves are never made: those of two cells have the inner
    product of their fillers by that of their roles.
    """
    from sklearn.decomposition import KernelPCA

    def inner_products(some, others):
        return (some[0] @ others[0].T) * (some[1] @ others[1].T)

    components = KernelPCA(
        min(fitted[0].shape), kernel="precomputed", eigen_solver="dense"
    ).fit(inner_products(fitted, fitted))
    return np.sum(
        np.square(components.transform(inner_products(checked, fitted)))
    )
