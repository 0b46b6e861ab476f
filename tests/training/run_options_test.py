import dataclasses

import pytest

from tpt_keras.errors import UsageError
from tpt_keras.training.run_options import RunOptions


@pytest.mark.parametrize(
    "name",
    [
        "gradient_accumulation_steps",
        "steps_per_execution",
        "keep_checkpoints",
    ],
)
@pytest.mark.parametrize("value", [0, -3])
def test_what_must_be_positive(name, value):
    with pytest.raises(UsageError, match=rf"{name} must be positive.* {value}"):
        RunOptions(**{name: value})
    assert getattr(RunOptions(**{name: 1}), name) == 1


@pytest.mark.parametrize(
    "name", ["max_steps_without_improvement", "evaluation_examples"]
)
def test_what_must_not_be_negative(name):
    with pytest.raises(UsageError, match=f"{name} must not be negative.* -1"):
        RunOptions(**{name: -1})
    assert getattr(RunOptions(**{name: 0}), name) == 0


@pytest.mark.parametrize(
    ("name", "value"), [("keep_checkpoints", "3"), ("jit_compile", 1)]
)
def test_what_is_of_a_wrong_type(name, value):
    with pytest.raises(UsageError, match=f"{name}.? takes .*{value!r} "):
        RunOptions(**{name: value})


def test_unknown_on_nan():
    with pytest.raises(
        UsageError, match=r"on_nan 'ignore'\. Known.*: rollback, stop\."
    ):
        RunOptions(on_nan="ignore")


@pytest.mark.parametrize(
    "steps",
    [
        ("5",),
        ("1", "2", "3"),
        ("0", "3"),
        ("-2", "3"),
        ("6", "5"),
        ("five", "6"),
        ("1.5", "2"),
    ],
)
def test_profile_steps_that_make_no_sense(steps):
    with pytest.raises(UsageError) as caught:
        RunOptions(profile_steps=steps)
    assert str(caught.value).startswith("profile_steps must be")
    assert str(caught.value).endswith(f" Received: {','.join(steps)}.")


@pytest.mark.parametrize(
    ("given", "expected"),
    [([], ()), (["3", "5"], (3, 5)), ((4, 4), (4, 4))],
)
def test_profile_steps(given, expected):
    """Text, as the flag has them, or numbers."""
    assert RunOptions(profile_steps=given).profile_steps == expected


def test_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        RunOptions().on_nan = "rollback"
