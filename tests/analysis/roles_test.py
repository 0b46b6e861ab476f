import numpy as np
import pytest

from tpt_keras.analysis.representations import cluster
from tpt_keras.analysis.representations import describe_clusters
from tpt_keras.analysis.representations import fraction_parts
from tpt_keras.analysis.representations import mutual_information
from tpt_keras.analysis.representations import split_by_text
from tpt_keras.errors import UsageError

TEXTS = ["⊢ab/cb⊣", "⊢ab⊣"]
IS_LETTER = np.array([0, 1, 1, 0, 1, 1, 0, 0, 1, 1, 0])
VECTORS = IS_LETTER[:, None] * 5.0 + np.random.default_rng(5).normal(
    size=(11, 3), scale=0.1
)


def test_the_largest_cluster_is_first():
    labels = cluster(VECTORS, 2)
    np.testing.assert_array_equal(labels, 1 - IS_LETTER)
    assert split_by_text(labels, TEXTS) == [[1, 0, 0, 1, 0, 0, 1], [1, 0, 0, 1]]


def test_more_clusters_than_distinct_vectors_are_refused():
    with pytest.raises(UsageError):
        cluster(np.eye(2).repeat(5, axis=0), 3)


def test_clusters_are_described_by_frequent_characters():
    letters, others = describe_clusters(1 - IS_LETTER, TEXTS, num_shown=2)
    assert letters == {
        "cluster": 0,
        "size": 6,
        "characters": [("b", 3), ("a", 2)],
        "contexts": [("⊢[a]b/", 1), ("⊢a[b]/c", 1)],
    }
    assert (others["size"], others["characters"][0]) == (5, ("⊢", 2))


def test_texts_may_have_words():
    texts = [["⊢", "is", " ", "1", "/", "2"]]
    (cluster,) = describe_clusters(np.zeros(6, int), texts)
    assert ("is", 1) in cluster["characters"]
    assert ("⊢[is] 1", 1) in cluster["contexts"]
    assert fraction_parts(texts[0])[3:] == ["numerator", None, "denominator"]


def test_mutual_information_is_one_for_equal_partitions():
    classes = ["letter" if is_letter else "other" for is_letter in IS_LETTER]
    information = mutual_information(1 - IS_LETTER, classes)
    assert information["adjusted_mutual_information"] == pytest.approx(1.0)
    assert information["tokens"] == 11
    # Characters without a class are left out.
    classes = [None if each == "other" else each for each in classes]
    assert mutual_information(1 - IS_LETTER, classes) is None
    classes[0] = "other"
    assert mutual_information(1 - IS_LETTER, classes)["tokens"] == 7


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("((15/(-9))/(5/2))/(20/(-6))", "  nn   d    d n    dd   n  "),
        ("Evaluate 3 + 4/(5-1).", "             n  d d  "),
        ("Which is bigger: 1/7 or -2/3?", "                 n d     n d "),
        ("What is 7/8 of a litre?", "        n d            "),
        # Variables, and text that is no expression.
        ("2*x/3", "     "),
        ("3 + 4", "     "),
    ],
)
def test_digits_have_their_part_of_the_fraction(text, parts):
    letters = {"numerator": "n", "denominator": "d", None: " "}
    assert "".join(letters[part] for part in fraction_parts(text)) == parts
