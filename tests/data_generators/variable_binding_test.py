import collections

import pytest

from tests.data_generators.files import all_texts
from tests.refusals import refused
from tpt_keras.data_generators import open_task


def run(question):
    """Runs a program; returns the values and the hops of its variables."""
    *lines, query = question.split(" ; ")
    values, hops = {}, {}
    for line in lines:
        name, source = line.split(" = ")
        assert name not in values
        values[name] = values.get(source, source)
        hops[name] = hops.get(source, 0) + 1
    assert set("".join(values.values())) <= set("0123456789")
    return values, hops, query.removeprefix("# ")


@pytest.mark.parametrize(
    ("lines", "hops", "most"), [(4, 1, 2), (9, 4, 4), (16, 4, 6)]
)
def test_answers_are_the_values(lines, hops, most):
    options = ["train_programs=1200", f"hops={hops}", f"lines={lines}"]
    task = open_task("variable_binding", "", options=options)
    assert task.splits == tuple(f"hops_{n + 1}" for n in range(most))
    taken, places = collections.Counter(), collections.Counter()
    for split in ("train", *task.splits):
        [examples] = task.examples(split).values()
        for question, answer in all_texts(examples):
            values, of_names, asked = run(question)
            assert len(values) == lines
            assert values[asked] == answer
            taken[split, of_names[asked]] += 1
            # Another variable of as many hops has another value.
            others = [n for n in values if of_names[n] == of_names[asked]]
            assert len({values[name] for name in others}) > 1
            assert max(of_names.values()) <= max(hops, of_names[asked])
            digits = list(filter(str.isdigit, question.split()))
            places["first"] += digits[0] == answer
            places["last"] += digits[-1] == answer
    assert taken == {
        **{("train", n): 1200 // hops for n in range(1, hops + 1)},
        **{(f"hops_{n}", n): 1000 for n in range(1, most + 1)},
    }
    # The place of a line does not tell the answer.
    assert max(places.values()) < 0.6 * taken.total()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hops", 0),
        ("hops", 9),
        ("lines", 3),
        ("lines", 27),
        ("train_programs", 0),
    ],
)
def test_impossible_programs_are_refused(field, value):
    with refused(field):
        open_task("variable_binding", "", options=[f"{field}={value}"])
