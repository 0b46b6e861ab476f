"""Clusters of role vectors, and the information that they carry."""

import ast
import collections
import re

import numpy as np

from tpt_keras.errors import UsageError

# Characters on each side that are shown as a character's context.
_CONTEXT = 2
# Text that may be an arithmetic expression with a fraction.
_EXPRESSION = re.compile(r"[-+*/(). \d]*/[-+*/(). \d]*")


def cluster(vectors, num_clusters, seed=0):
    """Clusters vectors with k-means.

    Returns an integer array of cluster numbers, the largest cluster first.
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


def describe_clusters(labels, texts, num_shown=5):
    """Describes clusters by their most frequent characters.

    The `labels` are those of all characters of the texts; see `cluster`.
    Returns a list of a dict for every cluster: its number, `cluster`; its
    `size`; and the most frequent `characters` and `contexts`, lists of pairs
    with their counts. A context has its character in brackets.
    """
    shown = {
        "characters": list("".join(texts)),
        "contexts": [
            f"{text[max(0, i - _CONTEXT) : i]}[{text[i]}]"
            f"{text[i + 1 : i + 1 + _CONTEXT]}"
            for text in texts
            for i in range(len(text))
        ],
    }
    described = []
    for number in range(labels.max() + 1):
        members = np.flatnonzero(labels == number)
        most_common = {
            name: collections.Counter(values[i] for i in members).most_common(
                num_shown
            )
            for name, values in shown.items()
        }
        described.append(
            {"cluster": number, "size": len(members), **most_common}
        )
    return described


def split_by_text(labels, texts):
    """Splits one label per character into a list for every text."""
    ends = np.cumsum([len(text) for text in texts])
    return [each.tolist() for each in np.split(labels, ends[:-1])]


def mutual_information(labels, classes):
    """Computes the information that clusters carry about classes.

    Characters of the class `None` are left out. Returns a dict of the
    `adjusted_mutual_information`, about 0 for random clusters and at most 1,
    and of the number of `characters`; or `None` for fewer than two classes.
    """
    from sklearn.metrics import adjusted_mutual_info_score

    known = [i for i, each in enumerate(classes) if each is not None]
    classes = [classes[i] for i in known]
    if len(set(classes)) < 2:
        return None
    information = adjusted_mutual_info_score(classes, labels[known])
    return {
        "adjusted_mutual_information": float(information),
        "characters": len(known),
    }


def fraction_parts(text):
    """Tells the digits of numerators from those of denominators.

    The part is that of the simplified fraction: a denominator's denominator
    is a numerator, as in figure 2 of Schlag et al. (2019). Returns a list of
    `"numerator"`, `"denominator"` or `None` for every character.

    Example:

    >>> fraction_parts("1/23")
    ['numerator', None, 'denominator', 'denominator']
    >>> fraction_parts("(1/2)/(3/4)")[-2]
    'numerator'
    """
    parts = [None] * len(text)
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
