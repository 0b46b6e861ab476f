from tpt_keras.visualization.tables import markdown_table
from tpt_keras.visualization.tables import replication_table
from tpt_keras.visualization.tables import table_cells

RESULT = {
    "accuracy": 0.40125,
    "low": 0.38,
    "high": 0.425,
    "solved": 3,
    "modules": 56,
    "examples": 560,
    "unread": 12,
}
SPLITS = ("interpolate", "extrapolate")
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


def test_the_table_has_a_row_for_each_model():
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
    # The unread questions are in a note.
    assert "12 of the 560" in " ".join(text.split())


def row(name, weights, paper_weights, **splits):
    return {
        "name": name,
        "weights": weights,
        "paper_weights": paper_weights,
        "seeds": 3,
        "splits": {
            split: {"mean": mean, "lowest": 0.1, "highest": 0.3}
            for split, mean in splits.items()
        },
    }


def test_the_replication_has_a_row_for_each_model():
    rows = [
        row("transformer", 900, 9_000_000, interpolate=0.2, extrapolate=0.15),
        row("tp_transformer", 1000, 10_000_000, interpolate=0.25),
    ]
    lines = replication_table(rows, SPLITS).splitlines()
    assert lines[2] == (
        "| transformer | 900 (90%) | 9,000,000 (90%) | 3 | "
        "20.0% (10.0% to 30.0%) | 15.0% (10.0% to 30.0%) |"
    )
    assert lines[3].endswith("| 25.0% (10.0% to 30.0%) | - |")


def test_the_replication_has_no_shares_without_the_base_model():
    text = replication_table([row("transformer", 900, 9000)], SPLITS)
    assert "| transformer | 900 | 9,000 | 3 | - | - |" in text
