"""Sections 5 to 7 of the paper: roles, reconstruction, binding, variance."""

import ast
import collections
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from tpt_keras.errors import UsageError
from tpt_keras.layers import TPMultiHeadAttention

# Characters on each side that are shown as a character's context.
_CONTEXT = 2
# Text that may be an arithmetic expression with a fraction.
_EXPRESSION = re.compile(r"[-+*/(). \d]*/[-+*/(). \d]*")


def cluster(
    vectors: np.ndarray, num_clusters: int, seed: int = 0
) -> np.ndarray:
    """Clusters vectors with k-means.

    Returns an array of cluster numbers, the largest cluster first.
    """
    from sklearn.cluster import KMeans

    distinct = len(np.unique(vectors, axis=0))
    if distinct < num_clusters:
        raise UsageError(
            f"There are {distinct} distinct vectors, too few for "
            f"{num_clusters} clusters. Take more problems or fewer clusters."
        )
    kmeans = KMeans(num_clusters, n_init=10, random_state=seed)
    labels = kmeans.fit_predict(vectors)
    by_size = np.argsort(-np.bincount(labels, minlength=num_clusters))
    return np.argsort(by_size)[labels]


def describe_clusters(
    labels: np.ndarray,
    texts: Sequence[str | list[str]],
    num_shown: int = 5,
    separator: str = "",
) -> list[dict[str, Any]]:
    """Describes clusters by their most frequent characters.

    The `labels` are those of all characters of the texts; see `cluster`. A text
    may be a list of words and characters; the `separator` is that of the
    model's tokenizer. Returns a list of a dict for every cluster: its number,
    `cluster`; its `size`; and the most frequent `characters` and `contexts`,
    pairs with their counts.
    """
    shown = {
        "characters": [symbol for text in texts for symbol in text],
        "contexts": [
            f"{separator.join(text[max(0, i - _CONTEXT) : i])}[{text[i]}]"
            f"{separator.join(text[i + 1 : i + 1 + _CONTEXT])}"
            for text in texts
            for i in range(len(text))
        ],
    }
    described = []
    for number in range(labels.max() + 1):
        members = np.flatnonzero(labels == number)
        row: dict[str, Any] = {"cluster": number, "size": len(members)}
        for name, values in shown.items():
            counts = collections.Counter(values[i] for i in members)
            row[name] = counts.most_common(num_shown)
        described.append(row)
    return described


def split_by_text(
    labels: np.ndarray, texts: Sequence[str | list[str]]
) -> list[list[int]]:
    """Splits the labels of all characters into a list for every text."""
    ends = np.cumsum([len(text) for text in texts])
    return [each.tolist() for each in np.split(labels, ends[:-1])]


def mutual_information(
    labels: np.ndarray, classes: Sequence[Any]
) -> dict[str, Any] | None:
    """Computes the information that clusters carry about classes.

    Tokens of the class `None` are left out. Returns a dict of the
    `adjusted_mutual_information`, about 0 for random clusters and at most 1,
    and of the number of `tokens`; or `None` for fewer than two classes.
    """
    from sklearn.metrics import adjusted_mutual_info_score

    known = [i for i, each in enumerate(classes) if each is not None]
    classes = [classes[i] for i in known]
    if len(set(classes)) < 2:
        return None
    information = adjusted_mutual_info_score(classes, labels[known])
    return {
        "adjusted_mutual_information": float(information),
        "tokens": len(known),
    }


def fraction_parts(text: str | list[str]) -> list[str | None]:
    """Tells the digits of numerators from those of denominators.

    The part is that of the simplified fraction: a denominator's denominator
    is a numerator, as in figure 2 of Schlag et al. (2019). Returns a list of
    `"numerator"`, `"denominator"` or `None` for every item of the text.

    Example:

    >>> fraction_parts("1/23")
    ['numerator', None, 'denominator', 'denominator']
    >>> fraction_parts("(1/2)/(3/4)")[-2]
    'numerator'
    """
    # A letter stands for its word.
    text = "".join(symbol[0] for symbol in text)
    parts: list[str | None] = [None] * len(text)
    for match in _EXPRESSION.finditer(text):
        expression = match[0].strip(" .")
        start = match.start() + match[0].index(expression)
        try:
            tree = ast.parse(expression, mode="eval")
        except SyntaxError:
            # A sign between words, or an expression with variables.
            continue
        for node, part in _numbers(tree.body, None):
            for column in range(node.col_offset, node.end_col_offset):
                if expression[column].isdigit():
                    parts[start + column] = part
    return parts


def _numbers(node, part):
    """Yields the numbers of an expression and their parts of the fraction."""
    if isinstance(node, ast.Constant):
        yield node, part
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        above = part or "numerator"
        below = "numerator" if above == "denominator" else "denominator"
        yield from _numbers(node.left, above)
        yield from _numbers(node.right, below)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _numbers(child, part)


# The binding problem's number of dimensions.
_DIM = 16
# Limits of the search for rotations.
_MAX_STEPS = 200
_TOLERANCE = 1e-5


def split_characters(
    lengths: Sequence[int], num_train: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Splits the characters of texts into a training set and a test set.

    Returns two arrays of indices: `num_train` characters of some texts, and all
    characters of the others, about half of all.
    """
    rows = np.repeat(np.arange(len(lengths)), lengths)
    if 2 * num_train > len(rows):
        raise UsageError(
            f"There are {len(rows)} tokens, too few to fit on {num_train} and "
            "to test on as many. Take more problems or fewer tokens."
        )
    rng = np.random.default_rng(seed)
    rank = np.argsort(rng.permutation(len(lengths)))[rows]
    # The training texts end with a whole text.
    last = np.sort(rank)[len(rows) // 2 - 1]
    training = np.flatnonzero(rank <= last)
    return (
        np.sort(rng.permutation(training)[:num_train]),
        np.flatnonzero(rank > last),
    )


def reconstruction(
    states: np.ndarray,
    values: np.ndarray,
    train: np.ndarray,
    held_out: np.ndarray,
) -> dict[str, list[float]]:
    """Fits affine maps from each head's values to the states (section 6.1).

    The states are `(characters, hidden_dim)`, the values `(characters,
    num_heads, value_dim)`. Returns a dict of `train` and `held_out`, every
    head's mean squared error, divided by that of the training mean.
    """
    from sklearn.linear_model import LinearRegression

    def mean_square(differences):
        return float(np.mean(np.square(differences)))

    variance = mean_square(states[held_out] - states[train].mean(axis=0))
    errors = {"train": [], "held_out": []}
    for head in range(values.shape[1]):
        model = LinearRegression().fit(values[train, head], states[train])
        for name, indices in (("train", train), ("held_out", held_out)):
            predicted = model.predict(values[indices, head])
            error = mean_square(states[indices] - predicted)
            errors[name].append(error / variance)
    return errors


def binding_problem(binding: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Computes the binding problem's example (section 6.2).

    Two attention layers of one head, without feed-forward and layer norm,
    read `(a/b)/(c/d)` and `(a/d)/(c/b)` with fixed attention weights. In the
    first layer `a` attends to its denominator alone, and so does `c`. In the
    second layer the `/` between attends to `a` and `c` equally.

    Returns a dict from both expressions to the final state of the `/` between,
    a float32 array. With `binding="none"` the two states are equal.
    """
    rng = np.random.default_rng(seed)
    a, b, c, d, slash = rng.normal(size=(5, 1, 1, _DIM)).astype("float32")
    first, second = (_uniform_attention(binding, rng) for _ in range(2))

    def final_state(denominator_of_a, denominator_of_c):
        numerators = ops.concatenate(
            [
                ops.add(a, first(a, denominator_of_a)),
                ops.add(c, first(c, denominator_of_c)),
            ],
            axis=1,
        )
        result = ops.add(slash, second(slash, numerators))
        return ops.convert_to_numpy(result)[0, 0]

    return {
        "(a/b)/(c/d)": final_state(b, d),
        "(a/d)/(c/b)": final_state(d, b),
    }


def _uniform_attention(binding, rng):
    """Builds a random layer of one head with equal attention weights."""
    layer = TPMultiHeadAttention(1, _DIM, use_bias=False, binding=binding)
    layer.build((1, 1, _DIM), (1, None, _DIM))
    for weight in layer.trainable_weights:
        weight.assign(rng.normal(size=weight.shape) * _DIM**-0.5)
    layer.query_dense.set_weights([np.zeros((_DIM, 1, _DIM))])
    return layer


def kept_variance(
    fillers: np.ndarray,
    roles: np.ndarray,
    train: np.ndarray,
    held_out: np.ndarray,
) -> dict[str, list[float]]:
    """Computes the variance of tensor products that bindings keep (section 7).

    The tensor products of one head, `filler role^T`, have `value_dim` squared
    numbers. Three compressions keep `value_dim` numbers of them:

    - `diagonal`: the elementwise product of filler and role.
    - `rotated`: the elementwise product of `M^T filler` and `N^T role`, with
      the orthogonal `M` and `N` that keep most.
    - `principal`: the principal components, the best linear compression.

    Fillers and roles are `(characters, num_heads, value_dim)`. Returns a dict
    from each compression to every head's share of the test products' variance.
    """
    shares = {"diagonal": [], "rotated": [], "principal": []}
    for head in range(fillers.shape[1]):
        of_head = [x[:, head].astype("float64") for x in (fillers, roles)]
        fitted = [x[train] for x in of_head]
        tested = [x[held_out] for x in of_head]
        total = _total(fitted, tested)
        m, n = rotations(*fitted)
        rotated = [(f @ m, r @ n) for f, r in (fitted, tested)]
        for name, kept in (
            ("diagonal", _on_diagonal(fitted, tested)),
            ("rotated", _on_diagonal(*rotated)),
            ("principal", _in_components(fitted, tested)),
        ):
            shares[name].append(float(kept / total))
    return shares


def rotations(
    fillers: np.ndarray, roles: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the rotations whose elementwise products keep most variance.

    The variance on the diagonal is convex in each of the two matrices, so a
    step to the orthogonal factor of its gradient never loses variance (the
    generalized power method; Journee et al., 2010). Returns the best of three
    starts, two orthogonal matrices.
    """
    dim = fillers.shape[1]
    rng = np.random.default_rng(0)
    starts = [
        [np.eye(dim), np.eye(dim)],
        [np.linalg.svd(x - x.mean(0))[2].T for x in (fillers, roles)],
        [_orthogonal(rng.normal(size=(dim, dim))) for _ in range(2)],
    ]
    results = [_climb(fillers, roles, *start) for start in starts]
    return max(results, key=lambda result: result[0])[1:]


def _climb(fillers, roles, m, n):
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


def _on_diagonal(fitted, tested):
    """Returns the sum of squares of elementwise products."""
    mean = np.mean(fitted[0] * fitted[1], axis=0)
    return np.sum(np.square(tested[0] * tested[1] - mean))


def _in_components(fitted, tested):
    """Returns the sum of squares in `value_dim` principal components."""
    # A kernel PCA avoids whole products: the inner product of two of them is
    # that of the fillers times that of the roles.
    from sklearn.decomposition import KernelPCA

    def kernel(some, others):
        return (some[0] @ others[0].T) * (some[1] @ others[1].T)

    components = KernelPCA(
        min(fitted[0].shape), kernel="precomputed", eigen_solver="dense"
    ).fit(kernel(fitted, fitted))
    return np.sum(np.square(components.transform(kernel(tested, fitted))))
