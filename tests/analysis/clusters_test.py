import numpy as np
import pytest

from tpt_keras.analysis.cells import Cells
from tpt_keras.analysis.clusters import cluster
from tpt_keras.analysis.clusters import describe_clusters
from tpt_keras.analysis.clusters import mutual_information
from tpt_keras.errors import UsageError

TEXTS = ["⊢ab/cb⊣", "⊢ab⊣"]
CELLS = Cells(
    TEXTS,
    np.repeat([0, 1], [7, 4]),
    np.concatenate([np.arange(7), np.arange(4)]),
    [],
)
# By the characters, letters and others.
IS_LETTER = np.array([0, 1, 1, 0, 1, 1, 0, 0, 1, 1, 0])
VECTORS = IS_LETTER[:, None] * 5.0 + np.random.default_rng(5).normal(
    size=(11, 3), scale=0.1
)


def test_clusters_by_size():
    labels = cluster(VECTORS, 2)
    np.testing.assert_array_equal(labels, 1 - IS_LETTER)
    np.testing.assert_array_equal(cluster(VECTORS, 2), labels)


def test_too_few_vectors():
    with pytest.raises(UsageError, match=r"2 different.* 3 clusters.*--count"):
        cluster(np.eye(2).repeat(5, axis=0), 3)


def test_what_clusters_are_of():
    letters, others = describe_clusters(1 - IS_LETTER, CELLS, num_shown=2)
    assert letters == {
        "cluster": 0,
        "cells": 6,
        "characters": [("b", 3), ("a", 2)],
        "contexts": [("⊢[a]b/", 1), ("⊢a[b]/c", 1)],
    }
    assert (others["cells"], others["characters"][0]) == (5, ("⊢", 2))


def test_what_clusters_tell():
    kinds = ["letter" if is_letter else "other" for is_letter in IS_LETTER]
    told = mutual_information(1 - IS_LETTER, kinds)
    assert told["adjusted_mutual_information"] == pytest.approx(1.0)
    assert told["shuffled"] < 0.9
    assert told["cells"] == 11
    # Of some cells alone.
    kinds = [None if kind == "other" else kind for kind in kinds]
    assert mutual_information(1 - IS_LETTER, kinds) is None
    kinds[0] = "other"
    assert mutual_information(1 - IS_LETTER, kinds)["cells"] == 7
