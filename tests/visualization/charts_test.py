from tpt_keras.visualization.charts import markdown_report

RESULT = {
    "accuracy": 0.40125,
    "low": 0.38,
    "high": 0.425,
    "solved": 3,
    "modules": 56,
    "examples": 560,
    "unread": 12,
}
MEAN = {"accuracy": 0.5, "low": 0.4, "high": 0.6, "solved": 1.5, "modules": 2}
PUBLISHED = {"accuracy": 0.5467, "solved": 3}


def row(name, weights, step, splits, **source):
    fields = {"name": name, "weights": weights, "step": step, "splits": splits}
    return {**fields, **source}


REPORT = {
    "problems": {"splits": ["train", "extrapolate"], "examples": 10},
    "means": [row("mine, mean of 2 seeds", 10**6, 10, {"train": MEAN})],
    "models": [row("mine", 49_178_112, None, {"train": RESULT})],
    "published": [
        row(
            *("theirs", 346_000_000, 1_000_000, {"extrapolate": PUBLISHED}),
            source="a paper",
        )
    ],
    "reached": [],
}


def test_the_table_has_a_row_for_each_model():
    text = markdown_report(REPORT)
    assert text.splitlines()[:5] == [
        "| model | weights | steps | train | >95% | extrapolate | >95% |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| mine, mean of 2 seeds | 1.0M | 10 | 50.00% (40.0% to 60.0%) | "
        "1.5 of 2 | - | - |",
        "| mine | 49.2M | - | 40.12% (38.0% to 42.5%) | 3 of 56 | - | - |",
        "| theirs (published: a paper) | 346.0M | 1,000,000 | - | - | "
        "54.67% | 3 |",
    ]
    # The unread questions are in a note.
    assert "12 of the 560" in " ".join(text.split())


def test_the_second_table_has_the_time_to_an_accuracy():
    first = {"step": 10, "examples": 1_250_000, "accuracy": 0.5}
    reached = [
        {"name": "mine", "level": 0.4, "row": {**first, "minutes": 7.25}},
        {"name": "mine", "level": 0.76, "row": None},
        {"name": "old", "level": 0.4, "row": first},
        {"name": "old", "level": 0.76, "row": None},
    ]
    assert "not reached" not in markdown_report(REPORT)
    text = markdown_report({**REPORT, "reached": reached})
    assert text[text.index("| training") :].splitlines()[:4] == [
        "| training | to 40% | to 76% |",
        "| --- | ---: | ---: |",
        "| mine | 1.2M examples, 7.2 minutes | not reached |",
        "| old | 1.2M examples | not reached |",
    ]
