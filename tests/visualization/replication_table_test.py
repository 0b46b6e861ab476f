from tpt_keras.visualization.replication_table import replication_table

SPLITS = ("interpolate", "extrapolate")


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


def test_a_row_for_each_model():
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


def test_without_the_model_that_others_are_compared_with():
    text = replication_table([row("transformer", 900, 9000)], SPLITS)
    assert "| transformer | 900 | 9,000 | 3 | - | - |" in text
