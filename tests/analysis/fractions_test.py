import pytest

from tpt_keras.analysis.fractions import fraction_parts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("1/23", "n dd"),
        ("(1/2)/(3/4)", " n d   d n "),
        ("((15/(-9))/(5/2))/(20/(-6))", "  nn   d    d n    dd   n  "),
        ("Calculate (-4)/(-12)*3.", "            n    dd    "),
        ("Evaluate 3 + 4/(5-1).", "             n  d d  "),
        ("Which is bigger: 1/7 or -2/3?", "                 n d     n d "),
        ("What is 7/8 of a litre?", "        n d            "),
        # With variables, and what is no expression.
        ("2*x/3", "     "),
        ("1/2)/3", "      "),
        ("3 + 4", "     "),
    ],
)
def test_parts(text, parts):
    letters = {"numerator": "n", "denominator": "d", None: " "}
    assert "".join(letters[part] for part in fraction_parts(text)) == parts
