"""What one head's values tell of the state they are maps of (section 6.1)."""

import numpy as np

from tpt_keras.errors import UsageError


def split_by_text(rows, num_train, seed=0):
    """Cells to fit on and cells to check with, of different texts.

    Args:
        rows: Integer array `(cells,)`: which text a cell is in.
        num_train: Number of cells to fit on.
        seed: Seed of which texts are which.

    Returns:
        Two integer arrays of indices: `num_train` cells of some texts, and all
        cells of the others, at least half of them all.

    Raises:
        UsageError: If there are not twice as many cells as `num_train`.
    """
    if 2 * num_train > len(rows):
        raise UsageError(
            f"There are {len(rows)} cells, too few to fit on {num_train} and "
            "to check with as many. Take more problems (--count), or fit on "
            "fewer (--train_cells)."
        )
    rng = np.random.default_rng(seed)
    texts = rng.permutation(rows.max() + 1)
    place = np.argsort(texts)[rows]
    in_order = np.argsort(place, kind="stable")
    # Up to the end of a text: the other cells are of other texts.
    last = place[in_order[len(rows) // 2 - 1]]
    fitted = np.flatnonzero(place <= last)
    return (
        np.sort(rng.permutation(fitted)[:num_train]),
        np.flatnonzero(place > last),
    )


def reconstruction_errors(states, values, train, held_out):
    """How well states are an affine map of one head's values.

    The map with the least squared error is fitted on some cells, and checked
    with others.

    Args:
        states: Array `(cells, hidden_dim)`.
        values: Array `(cells, num_heads, value_dim)`, maps of the states.
        train: Indices of the cells to fit on.
        held_out: Indices of the others.

    Returns:
        Dict of the mean squared errors of every head, `train` and `held_out`,
        lists; and of the `variance`, the error of the train cells' mean on
        the held-out ones.
    """
    from sklearn.linear_model import LinearRegression

    errors = {"train": [], "held_out": []}
    for head in range(values.shape[1]):
        model = LinearRegression().fit(values[train, head], states[train])
        for name, cells in (("train", train), ("held_out", held_out)):
            predicted = model.predict(values[cells, head])
            errors[name].append(_mean_square(states[cells] - predicted))
    mean = states[train].mean(axis=0)
    return {**errors, "variance": _mean_square(states[held_out] - mean)}


def _mean_square(differences):
    return float(np.mean(np.square(differences)))
