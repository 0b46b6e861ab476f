"""Programs of assignments, and the value of one variable."""

import collections
import random
import string
from collections.abc import Sequence

from tpt_keras.data_generators.task import TRAIN
from tpt_keras.data_generators.task import WordsTask
from tpt_keras.errors import check_choice
from tpt_keras.errors import check_positive_integer
from tpt_keras.typing import StrPath

# Of each split for evaluation.
_TEST_PROGRAMS = 1000
# How many hops more than the training's are evaluated.
_MORE_HOPS = 2
# The share of the lines beside both chains that assign a constant.
_CONSTANTS = 0.3


class VariableBindingTask(WordsTask):
    """Programs of Wu, Geiger and Milliere (2025), made here.

    A question is a program, `"a = 5 ; c = 2 ; b = a ; # b"`, and its answer the
    value of the variable asked for, here in two hops. As in the paper, there
    are 16 assignments of a digit or an earlier variable, and a variable is a
    letter. The paper samples programs until their depths are balanced. Here a
    program is built around two chains of as many hops with different values,
    one of which is asked for, and further lines that branch off, in a random
    order, so that no line's place or chain's length tells the answer.

    Args:
        data_dir: Unused.
        groups: `variable_binding`, or a pattern.
        hops: Most hops of a training program, at most half of the lines. Those
            of one hop to as many are equally frequent. The splits for
            evaluation are `hops_1` and so on, the last two, if the lines
            suffice, beyond any chain of the training.
        lines: Number of a program's assignments, 4 to 26.
        train_programs: Number of programs for the training.
    """

    name = "variable_binding"

    def __init__(
        self,
        data_dir: StrPath = "",
        groups: Sequence[str] = (),
        hops: int = 4,
        lines: int = 16,
        train_programs: int = 50_000,
    ) -> None:
        check_positive_integer("train_programs", train_programs)
        # Of shorter programs, many would be in the training and in a test.
        check_choice("lines", lines, range(4, len(string.ascii_lowercase) + 1))
        check_choice("hops", hops, range(1, lines // 2 + 1))
        numbers = {TRAIN: [1 + each % hops for each in range(train_programs)]}
        for each in range(1, min(hops + _MORE_HOPS, lines // 2) + 1):
            numbers[f"hops_{each}"] = [each] * _TEST_PROGRAMS
        pairs = {}
        for split, of_split in numbers.items():
            rng = random.Random(split)
            pairs[split] = [
                _program(rng, lines, each, max(hops, each)) for each in of_split
            ]
        super().__init__(groups, pairs)


def _program(rng, num_lines, hops, most):
    """Makes a program and its answer, with other chains of `most` hops."""
    letters = rng.sample(string.ascii_lowercase, num_lines)
    answer, other = rng.sample(string.digits, 2)
    asked, distractor = letters[:hops], letters[hops : 2 * hops]
    sources = dict(zip(asked, [answer, *asked]))
    sources |= zip(distractor, [other, *distractor])
    depths = dict.fromkeys(string.digits, 0)
    for letter, source in sources.items():
        depths[letter] = depths[source] + 1
    for letter in letters[2 * hops :]:
        values = [each for each in sources if depths[each] < most]
        if rng.random() < _CONSTANTS or not values:
            values = list(string.digits)
        sources[letter] = rng.choice(values)
        depths[letter] = depths[sources[letter]] + 1
    # The lines that may be next: those whose variable has been assigned.
    lines = []
    waiting = collections.defaultdict(list)
    for letter, source in sources.items():
        waiting[source].append(letter)
    ready = [letter for digit in string.digits for letter in waiting[digit]]
    while ready:
        letter = ready.pop(rng.randrange(len(ready)))
        lines.append(f"{letter} = {sources[letter]}")
        ready += waiting[letter]
    return " ; ".join([*lines, f"# {asked[-1]}"]), answer
