import math
import warnings

import numpy as np
import pandas as pd
import pytest

from tests.refusals import refused
from tpt_keras.answer import OK
from tpt_keras.answer import UNKNOWN_CHARACTER
from tpt_keras.answer import Answer
from tpt_keras.answer import AnsweringModel
from tpt_keras.answer import list_of_texts


class Parrot(AnsweringModel):
    """Answers questions with themselves, but not those with a %."""

    config = {"vocabulary": ["1", "5", "0"]}

    def _answer_batch(self, questions):
        return [
            Answer("", status=UNKNOWN_CHARACTER)
            if "%" in question
            else Answer(question)
            for question in questions
        ]


@pytest.mark.parametrize(
    "kind",
    [
        *(list, tuple, iter, np.array, pd.Series, lambda q: map(str, q)),
        lambda q: pytest.importorskip("tensorflow").constant(q),
    ],
)
def test_any_iterable_is_answered_and_warns(kind):
    Parrot.config = {"vocabulary": ["1", "5", "0"]}
    match = "'50%' has the character '%'"
    with pytest.warns(UserWarning, match=match) as warned:
        assert Parrot().solve(kind(["50%", "1"])) == ["", "1"]
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Parrot().solve(kind(["22", "1"])) == ["22", "1"]


def test_bytes_are_questions():
    assert list_of_texts([b"1", "2"]) == ["1", "2"]
    assert [each.status for each in Parrot().answer([b"1\xff", "\ud800"])] == [
        OK,
        OK,
    ]
    with pytest.warns(UserWarning, match="1 of 1 questions"):
        Parrot().solve([b"%"])


@pytest.mark.parametrize(
    "questions",
    [
        None,
        5,
        "1 + 1",
        b"1 + 1",
        [1, 2],
        ["1", math.nan],
        np.array("1"),
        np.array([["1"]]),
        {"1": "2"},
        pd.DataFrame({"question": ["1"]}),
    ],
)
def test_anything_else_is_refused_in_one_line(questions):
    for use in (Parrot().solve, Parrot().answer, list_of_texts):
        with refused("questions"):
            use(questions)
