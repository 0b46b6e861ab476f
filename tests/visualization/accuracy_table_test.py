from tpt_keras.visualization.accuracy_table import markdown_table
from tpt_keras.visualization.accuracy_table import table_cells

RESULT = {
    "accuracy": 0.40125,
    "low": 0.38,
    "high": 0.425,
    "solved": 3,
    "modules": 56,
    "examples": 560,
    "unread": 0,
}
REPORT = {
    "problems": {"splits": ["train", "extrapolate"], "examples": 10},
    "models": [
        {
            "name": "mine",
            "weights": 49_178_112,
            "step": None,
            "splits": {"train": RESULT},
        }
    ],
    "published": [
        {
            "name": "theirs",
            "source": "a paper",
            "weights": 346_000_000,
            "step": 1_000_000,
            "splits": {"extrapolate": {"accuracy": 0.5467, "solved": 3}},
        }
    ],
}


def test_a_row_for_each_model_and_published_ones():
    cells = table_cells(REPORT)
    mine = ["mine", "49.2M", "-", "40.12% (38.0% to 42.5%)", "3 of 56"]
    theirs = ["theirs (published: a paper)", "346M", "1,000,000", "-", "-"]
    assert cells == [
        ["model", "weights", "steps", "train", ">95%", "extrapolate", ">95%"],
        [*mine, "-", "-"],
        [*theirs, "54.67%", "3"],
    ]
    text = markdown_table(REPORT)
    assert text.startswith("| model | weights |")
    assert f"\n| {' | '.join(cells[1])} |\n" in text
    assert "cannot read" not in text


def test_questions_that_are_not_read_are_said():
    unread = {**RESULT, "unread": 12}
    model = {**REPORT["models"][0], "splits": {"train": unread}}
    text = markdown_table({**REPORT, "models": [model]})
    assert "mine cannot read 12 of the 560 questions of train" in " ".join(
        text.split()
    )
