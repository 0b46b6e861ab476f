"""Clusters of cells' vectors, and what they tell of the characters."""

import collections

import numpy as np

from tpt_keras.errors import UsageError

# Characters on each side of one, as its context.
_CONTEXT = 2


def cluster(vectors, num_clusters, seed=0):
    """Clusters vectors with k-means.

    Args:
        vectors: Array `(cells, dim)`.
        num_clusters: Number of clusters.
        seed: Seed of where the clusters start.

    Returns:
        Integer array `(cells,)`: the number of each one's cluster, of which 0
        is the largest.

    Raises:
        UsageError: If there are fewer different vectors than clusters.
    """
    from sklearn.cluster import KMeans

    different = len(np.unique(vectors, axis=0))
    if different < num_clusters:
        raise UsageError(
            f"There are {different} different vectors to make {num_clusters} "
            "clusters of. Take more problems (--count) or fewer clusters "
            "(--clusters)."
        )
    kmeans = KMeans(num_clusters, n_init=10, random_state=seed)
    labels = kmeans.fit_predict(vectors)
    by_size = np.argsort(-np.bincount(labels, minlength=num_clusters))
    return np.argsort(by_size)[labels]


def describe_clusters(labels, cells, num_shown=5):
    """What the clusters' characters are.

    Args:
        labels: Integer array `(cells,)`, as `cluster` gives them.
        cells: `Cells`.
        num_shown: How many of the most frequent ones to name.

    Returns:
        List of a dict for every cluster: its `cells`, their number, and lists
        of the most frequent `characters` and `contexts` with their numbers. In
        a context the character stands in brackets.
    """
    characters = cells.of(cells.texts)
    contexts = cells.of(list(map(_contexts, cells.texts)))
    described = []
    for number in range(labels.max() + 1):
        members = np.flatnonzero(labels == number)
        described.append(
            {
                "cluster": number,
                "cells": len(members),
                **{
                    name: collections.Counter(
                        values[member] for member in members
                    ).most_common(num_shown)
                    for name, values in (
                        ("characters", characters),
                        ("contexts", contexts),
                    )
                },
            }
        )
    return described


def _contexts(text):
    return [
        f"{text[max(0, i - _CONTEXT) : i]}[{text[i]}]"
        f"{text[i + 1 : i + 1 + _CONTEXT]}"
        for i in range(len(text))
    ]


def mutual_information(labels, kinds, num_shuffles=20, seed=0):
    """How well clusters tell of what kind a character is.

    Args:
        labels: Integer array `(cells,)`, as `cluster` gives them.
        kinds: List of as many kinds; cells of the kind `None` are left out.
        num_shuffles: How often the clusters are shuffled among the cells.
        seed: Seed of the shuffles.

    Returns:
        Dict of the `adjusted_mutual_information`, from about 0 to 1 where one
        follows from the other; of `shuffled`, the largest of shuffled
        clusters; and of the number of `cells`. `None` if there are no two
        kinds.
    """
    from sklearn.metrics import adjusted_mutual_info_score

    is_known = np.array([kind is not None for kind in kinds], bool)
    known = [kind for kind in kinds if kind is not None]
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
        "cells": len(known),
    }
