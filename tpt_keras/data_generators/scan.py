"""SCAN: commands in simplified English and their sequences of actions."""

import hashlib
from collections.abc import Sequence

from tpt_keras.data_generators.task import TRAIN
from tpt_keras.data_generators.task import WordsTask
from tpt_keras.errors import check_choice
from tpt_keras.typing import StrPath

SPLITS = ("simple", "length", "addprim_jump")

_TIMES = {"twice": 2, "thrice": 3}
_PRIMITIVES = ("walk", "look", "run", "jump")
_SIMPLE_TEST = 4182
_LONGEST_TRAINING = 22
# How often the training of `addprim_jump` has its one command with "jump": a
# tenth of 14,670, as the published files have it.
_JUMPS = 1467


class ScanTask(WordsTask):
    """SCAN (Lake and Baroni, 2018), made from its grammar.

    Args:
        data_dir: Unused.
        groups: `scan`, or a pattern.
        split: The way in which the 20,910 commands are split. `"simple"`: at
            random (here by a hash of the command). `"length"`: training has
            those of up to 22 actions. `"addprim_jump"`: training has "jump"
            alone, as a tenth of its examples, and in no longer command.
        split_seed: Seed of the simple split.
    """

    name = "scan"
    # Set apart, the word would be in no example of `addprim_jump`'s training.
    kept = ("jump",)

    def __init__(
        self,
        data_dir: StrPath = "",
        groups: Sequence[str] = (),
        split: str = "simple",
        split_seed: int = 0,
    ) -> None:
        check_choice("split", split, SPLITS)

        def key(command):
            return hashlib.sha256(f"{split_seed}/{command}".encode()).digest()

        train, test = [], []
        # The simple split cuts this order.
        for index, command in enumerate(sorted(commands(), key=key)):
            answer = actions(command)
            is_test = {
                "simple": index < _SIMPLE_TEST,
                "length": len(answer.split()) > _LONGEST_TRAINING,
                "addprim_jump": "jump" in command and command != "jump",
            }[split]
            (test if is_test else train).append((command, answer))
        if split == "addprim_jump":
            train += [("jump", actions("jump"))] * (_JUMPS - 1)
        super().__init__(groups, {TRAIN: train, "test": test})


def commands() -> list[str]:
    """Returns all commands of the grammar."""
    phrases = list(_PRIMITIVES)
    for verb in (*_PRIMITIVES, "turn"):
        for manner in ("", "opposite ", "around "):
            phrases += [f"{verb} {manner}{side}" for side in ("left", "right")]
    sentences = [
        f"{phrase}{times}"
        for phrase in phrases
        for times in ("", *(f" {each}" for each in _TIMES))
    ]
    return sentences + [
        f"{first} {conjunction} {second}"
        for first in sentences
        for conjunction in ("and", "after")
        for second in sentences
    ]


def actions(command: str) -> str:
    """Interprets a command as a text of actions."""
    first, conjunction, second = command.partition(" and ")
    if not conjunction:
        second, _, first = command.rpartition(" after ")
    return " ".join(_of_sentence(first.split()) + _of_sentence(second.split()))


def _of_sentence(words):
    if not words or words == ["turn"]:
        return []
    *words, last = words
    if last in _TIMES:
        return _of_sentence(words) * _TIMES[last]
    if last in _PRIMITIVES:
        return [f"I_{last.upper()}"]
    turn, done = [f"I_TURN_{last.upper()}"], _of_sentence(words[:1])
    if "around" in words:
        return (turn + done) * 4
    return turn * (1 + ("opposite" in words)) + done
