"""Clusters of role vectors, and the information that they carry."""

import ast
import collections
import re

import numpy as np

from tpt_keras.errors import UsageError

NUMERATOR = "numerator"
DENOMINATOR = "denominator"
# Characters on each side that are shown as a character's context.
_CONTEXT = 2
# Text that may be an arithmetic expression with a fraction.
_EXPRESSION = re.compile(r"[-+*/(). \d]*/[-+*/(). \d]*")


def cluster(vectors, num_clusters, seed=0):
    """Clusters vectors with k-means.

    Args:
        vectors: Array `(characters, dim)`.
        num_clusters: Number of clusters.
        seed: Seed of the initial clusters.

    Returns:
        Integer array `(characters,)` of cluster numbers, the largest cluster
        first.

    Raises:
        UsageError: If there are fewer distinct vectors than clusters.
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


def describe_clusters(labels, vectors, num_shown=5):
    """Describes clusters by their most frequent characters.

    Args:
        labels: Integer array `(characters,)`, as `cluster` returns it.
        vectors: `CharacterVectors`.
        num_shown: Number of characters and contexts to list.

    Returns:
        List of a dict for every cluster: its number, `cluster`; its `size`;
        and the most frequent `characters` and `contexts`, lists of pairs with
        their counts. A context has its character in brackets.
    """
    characters = vectors.flatten(vectors.texts)
    contexts = vectors.flatten(list(map(_contexts, vectors.texts)))
    described = []
    for number in range(labels.max() + 1):
        members = np.flatnonzero(labels == number)
        described.append(
            {
                "cluster": number,
                "size": len(members),
                "characters": _most_common(characters, members, num_shown),
                "contexts": _most_common(contexts, members, num_shown),
            }
        )
    return described


def _most_common(values, members, count):
    return collections.Counter(values[i] for i in members).most_common(count)


def _contexts(text):
    return [
        f"{text[max(0, i - _CONTEXT) : i]}[{text[i]}]"
        f"{text[i + 1 : i + 1 + _CONTEXT]}"
        for i in range(len(text))
    ]


def mutual_information(labels, classes, num_shuffles=20, seed=0):
    """Computes the information that clusters carry about classes.

    Args:
        labels: Integer array `(characters,)`, as `cluster` returns it.
        classes: List of as many classes. Characters with the class `None` are
            left out.
        num_shuffles: Number of random permutations of the labels.
        seed: Seed of the permutations.

    Returns:
        Dict of the `adjusted_mutual_information`, from about 0 to 1;
        `shuffled`, the largest of the permuted labels; and the number of
        `characters`. `None` if there are fewer than two classes.
    """
    from sklearn.metrics import adjusted_mutual_info_score

    is_known = np.array([each is not None for each in classes], bool)
    known = [each for each in classes if each is not None]
    if len(set(known)) < 2:
        return None
    labels = labels[is_known]
    rng = np.random.default_rng(seed)
    return {
        "adjusted_mutual_information": float(
            adjusted_mutual_info_score(known, labels)
        ),
        "shuffled": max(
            float(adjusted_mutual_info_score(known, rng.permutation(labels)))
            for _ in range(num_shuffles)
        ),
        "characters": len(known),
    }


def fraction_parts(text):
    """Tells the digits of numerators from those of denominators.

    The part is that of the simplified fraction: a denominator's denominator
    is a numerator, as in figure 2 of Schlag et al. (2019).

    Args:
        text: A text with arithmetic expressions.

    Returns:
        List of `"numerator"`, `"denominator"` or `None` for every character.

    Example:

    >>> fraction_parts("1/23")
    ['numerator', None, 'denominator', 'denominator']
    >>> fraction_parts("(1/2)/(3/4)")[-2]
    'numerator'
    """
    parts = [None] * len(text)
    for match in _EXPRESSION.finditer(text):
        expression = match[0].rstrip(" .")
        start = match.start() + len(expression)
        expression = expression.lstrip()
        start -= len(expression)
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
    elif isinstance(node, ast.UnaryOp):
        yield from _numbers(node.operand, part)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        above = part or NUMERATOR
        below = NUMERATOR if above == DENOMINATOR else DENOMINATOR
        yield from _numbers(node.left, above)
        yield from _numbers(node.right, below)
    elif isinstance(node, ast.BinOp):
        yield from _numbers(node.left, part)
        yield from _numbers(node.right, part)
