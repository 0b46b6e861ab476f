import re

import pytest

from tests.data_generators.files import all_texts
from tests.refusals import refused
from tpt_keras.data_generators import ScanTask
from tpt_keras.data_generators import open_task
from tpt_keras.data_generators import select_groups
from tpt_keras.data_generators.scan import actions
from tpt_keras.data_generators.scan import commands
from tpt_keras.data_generators.task import split_batches
from tpt_keras.models import PRESETS
from tpt_keras.training.config import TrainingConfig

# Actions by their initials, L and R for turns.
INITIALS = {"L": "I_TURN_LEFT", "R": "I_TURN_RIGHT", "W": "I_WALK"}
INITIALS |= {"O": "I_LOOK", "N": "I_RUN", "J": "I_JUMP"}
BY_HAND = """
walk: W; turn left: L; jump right: RJ; run twice: NN; look thrice: OOO;
turn right thrice: RRR; walk left twice: LWLW; turn opposite left: LL;
jump opposite right: RRJ; run opposite left twice: LLNLLN;
turn around right: RRRR; look around left: LOLOLOLO;
turn around left twice: LLLLLLLL; walk and jump: WJ; walk after jump: JW;
jump twice and look: JJO; run after turn left thrice: LLLN;
look right and walk opposite left: ROLLW;
turn opposite right after run around left: LNLNLNLNRR;
jump around right and turn left twice: RJRJRJRJLL
"""


@pytest.mark.parametrize("line", BY_HAND.split(";"))
def test_actions_by_hand(line):
    command, initials = line.strip().split(": ")
    assert actions(command) == " ".join(INITIALS[each] for each in initials)


@pytest.fixture(scope="module")
def tasks():
    return {
        split: open_task("scan", "", options=[f"split={split}"])
        for split in ("simple", "length", "addprim_jump")
    }


@pytest.mark.parametrize(
    ("split", "train", "test"),
    [
        ("simple", 16728, 4182),
        ("length", 16990, 3920),
        ("addprim_jump", 14670, 7706),
    ],
)
def test_counts_are_those_of_the_published_files(tasks, split, train, test):
    examples = [
        tasks[split].examples(each)["scan"] for each in ("train", "test")
    ]
    assert list(map(len, examples)) == [train, test]
    train, test = (dict(all_texts(each)) for each in examples)
    assert train | test == {each: actions(each) for each in commands()}
    assert len(train) + len(test) == 20910
    assert len(tasks[split].vocabulary) == 4 + 13 + 6
    if split == "length":
        sizes = [[*map(len, map(str.split, x.values()))] for x in (train, test)]
        assert (max(sizes[0]), min(sizes[1]), max(sizes[1])) == (22, 24, 48)
    if split == "addprim_jump":
        assert len(train) == 13204
        assert [x for x in train if re.search("jump", x)] == ["jump"]


def test_a_seed_makes_another_simple_split(tasks):
    other = ScanTask(split_seed=1).examples("test")["scan"]
    assert len(other) == 4182
    assert all_texts(other) != all_texts(
        tasks["simple"].examples("test")["scan"]
    )
    with refused("split"):
        ScanTask(split="random")
    assert select_groups("scan", "", []) == ("scan",)


def test_a_model_has_room_for_every_text(tasks):
    config = PRESETS["tp_transformer_tiny"].replace(max_question_length=3)
    adapted = tasks["simple"].adapted(config)
    assert adapted.vocabulary == tasks["simple"].vocabulary
    assert (adapted.max_question_length, adapted.max_answer_length) == (9, 48)


def test_the_training_keeps_its_jump(tasks):
    task = tasks["addprim_jump"]
    # Its hash is among the first thousand.
    config = TrainingConfig.from_flat(modules=["scan"])
    model_config = task.adapted(PRESETS["tp_transformer_tiny"])
    training, validation = split_batches(task, model_config, config)
    questions = [q for q, _ in training.source.texts(range(len(training)))]
    assert questions.count("jump") == 1467
    assert len(validation) == 1000
