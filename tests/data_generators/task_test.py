import pytest

from tests.conftest import MODULE
from tests.data_generators.files import MODULES
from tests.data_generators.files import all_texts
from tests.data_generators.files import examples_of
from tests.data_generators.files import numbered_examples
from tests.refusals import refused
from tpt_keras.data_generators import open_task
from tpt_keras.data_generators import select_groups
from tpt_keras.data_generators.mathematics import archive
from tpt_keras.data_generators.mathematics.archive import MODULES as ALL
from tpt_keras.data_generators.mathematics.task import prepare_tokens
from tpt_keras.data_generators.task import Task
from tpt_keras.data_generators.task import split_batches
from tpt_keras.data_generators.text_pairs import Pair
from tpt_keras.data_generators.text_pairs import write_pairs
from tpt_keras.errors import UsageError
from tpt_keras.models import PRESETS
from tpt_keras.training.config import TrainingConfig


class NumbersTask(Task):
    """A task of examples in memory."""

    splits = ("test",)

    def __init__(self, groups):
        self._examples = groups
        self.groups = tuple(groups)

    def examples(self, split):
        return self._examples


def settings(validation_examples=10, module_weights=(), seed=0):
    return TrainingConfig.from_flat(
        modules=("a", "b")[: len(module_weights) or 1],
        batch_size=8,
        validation_examples=validation_examples,
        module_weights=module_weights,
        seed=seed,
    )


CONFIG = PRESETS["tp_transformer_tiny"]


def texts(batches):
    return all_texts(batches.source)


def test_validation_has_a_seed_and_the_same_share_of_each_group():
    task = NumbersTask(
        {"a": numbered_examples(90), "b": numbered_examples(40, "b")}
    )
    _, validation = split_batches(task, CONFIG, settings())
    _, other = split_batches(task, CONFIG, settings(seed=1))
    assert set(texts(other)) != set(texts(validation))
    names = [question[0] for question, _ in texts(validation)]
    assert names.count("a") == names.count("b") == 5


REPEATED = [(str(n), str(n + time)) for time in range(4) for n in range(40)]


def pairs_task(folder, names):
    for name in names:
        write_pairs(folder / name, [Pair(*pair) for pair in REPEATED])
    return open_task("text_pairs", folder)


def mathematics_task(folder, modules):
    for module in modules:
        paths = archive.text_paths(folder / archive.FOLDER, module)
        for split, path in paths.items():
            trains = split in archive.TRAIN_SPLITS
            archive.write_problems(path, REPEATED if trains else [("a", "1")])
        prepare_tokens(module, folder, folder)
    return open_task("mathematics_dataset", folder, modules)


@pytest.mark.parametrize(
    ("make_task", "names"),
    [
        (pairs_task, ["a.jsonl"]),
        (pairs_task, ["a.jsonl", "b.jsonl"]),
        (mathematics_task, ["numbers__gcd", "numbers__lcm"]),
    ],
)
def test_no_validation_question_is_trained_on(tmp_path, make_task, names):
    task = make_task(tmp_path, names)
    sides = split_batches(task, CONFIG, settings())
    trained, held = ([q for q, _ in texts(side)] for side in sides)
    assert len(held) == 10
    assert not set(trained) & set(held)
    every = [*map(all_texts, task.examples("train").values())]
    assert {*trained, *held} == {q for pairs in every for q, _ in pairs}
    for examples in task.sample("train", 10).values():
        assert not {q for q, _ in all_texts(examples)} & set(held)


def test_batches_follow_the_weights():
    task = NumbersTask(
        {"a": numbered_examples(60), "b": numbered_examples(60, "b")}
    )
    config = settings(module_weights=(1.0, 3.0))
    training, _ = split_batches(task, CONFIG, config)
    names = [question[0] for question, _ in texts(training)]
    assert abs(names.count("b") - 3 * names.count("a")) <= 3


def test_weights_of_patterns_are_refused():
    task = NumbersTask({name: numbered_examples(60) for name in ("a", "ab")})
    for modules in (["a*"], ["all"], ["a", "a?"]):
        config = TrainingConfig.from_flat(
            modules=modules,
            module_weights=range(1, 1 + len(modules)),
            validation_examples=10,
        )
        with refused("module_weights"):
            split_batches(task, CONFIG, config)
        split_batches(task, CONFIG, config.replace(module_weights=()))


@pytest.mark.parametrize("count", [1, 5])
def test_group_too_small_for_validation_is_refused(count):
    task = NumbersTask(
        {"a": numbered_examples(count), "b": numbered_examples(90, "b")}
    )
    with pytest.raises(UsageError) as error:
        split_batches(task, CONFIG, settings())
    assert error.value.field == "validation_examples"
    assert str(error.value).startswith("a ")


def test_long_training_example_is_refused_before_training():
    pairs = [("1" * 161, "1"), *((f"{n}", "1") for n in range(30))]
    task = NumbersTask({"sums": examples_of(pairs)})
    sides = split_batches(task, CONFIG, settings())
    with refused("max_question_length"):
        _ = [batches.length_pairs for batches in sides]


def test_fingerprints_depend_on_the_problems_alone():
    def fingerprint(pairs):
        return NumbersTask({"a": examples_of(pairs)}).fingerprints["a"]

    pairs = [(f"{n} + 1", str(n + 1)) for n in range(50)]
    assert fingerprint(pairs) == fingerprint(list(pairs))
    changed = [("9 + 9", "18"), *pairs[1:]]
    assert len({fingerprint(p) for p in (pairs, pairs[:-1], changed)}) == 3
    # It never changes, or no training could be resumed.
    pairs = [(f"{n} + 1", str(n + 1)) for n in range(100)]
    assert fingerprint(pairs) == "292ddfb55ffb32db"


def test_unknown_split_is_refused(data_dir):
    task = open_task("mathematics_dataset", data_dir, MODULES)
    assert task.groups == tuple(sorted(MODULES))
    with refused("split"):
        task.examples("test")


def test_samples_are_fixed_and_apart_from_validation():
    task = NumbersTask({"a": numbered_examples(90)})

    def sample(split, count=None):
        examples = task.sample(split, count)["a"]
        return examples.texts(range(len(examples)))

    assert sample("test", 20)[:5] == sample("test", 5)
    _, validation = split_batches(
        task, CONFIG, settings(validation_examples=60)
    )
    assert not set(sample("train", 20)) & set(texts(validation))
    assert len(sample("train", 1000)) == len(sample("train")) == 90


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": "nothing"}, "dataset"),
        ({"groups": ["numbers__nothing"]}, "module"),
        ({"groups": ["numbers__gcd"]}, "data_dir"),
        ({"name": "math_dataset"}, "data_dir"),
        ({"data_dir": "nowhere"}, "data_dir"),
        ({"data_dir": "my.csv"}, "dataset"),
        ({"data_dir": "my.csv", "groups": ()}, "dataset"),
    ],
)
def test_missing_data_is_refused(data_dir, changes, field):
    arguments = {
        "name": "mathematics_dataset",
        "data_dir": data_dir,
        "groups": [MODULE],
        **changes,
    }
    with refused(field):
        open_task(**arguments)


def test_many_missing_modules_are_one_short_line(data_dir):
    with pytest.raises(UsageError) as error:
        open_task("mathematics_dataset", data_dir, ["all"])
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["all"], ALL),
        (["numbers__gcd"], ("numbers__gcd",)),
        (
            ["numbers__g*", "algebra__linear_?d", "numbers__gcd"],
            (
                "algebra__linear_1d",
                "algebra__linear_2d",
                "numbers__gcd",
                "numbers__gcd_composed",
            ),
        ),
    ],
)
def test_select_groups(patterns, names):
    assert select_groups("mathematics_dataset", "data", patterns) == names


@pytest.mark.parametrize(
    ("patterns", "field"),
    [([], "modules"), (["numbers__gcd", "x*"], "module"), ([""], "module")],
)
def test_groups_that_are_not_there(patterns, field):
    with refused(field):
        select_groups("mathematics_dataset", "data", patterns)
