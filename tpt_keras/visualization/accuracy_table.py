"""The paper's Table 1 as text: models, and the published rows beside them."""

import textwrap

_HEADER = ("model", "weights", "steps")


def table_cells(report):
    """The texts of the table.

    Args:
        report: Dict of `models` and `published`, lists of rows with `name`,
            `weights`, `step` and `splits`, and the `problems` with the names
            of the splits. See `experiments.report`.

    Returns:
        List of lists of strings, the header first.
    """
    splits = report["problems"]["splits"]
    header = [*_HEADER]
    for split in splits:
        header += [split, ">95%"]
    return [
        header,
        *(_row(each, splits) for each in report["models"]),
        *(_row(each, splits) for each in report["published"]),
    ]


def _row(row, splits):
    name = row["name"]
    if "source" in row:
        name += f" (published: {row['source']})"
    weights, step = row["weights"] / 1e6, row["step"]
    cells = [
        name,
        f"{weights:.1f}M" if weights < 100 else f"{weights:.0f}M",
        "-" if step is None else f"{step:,}",
    ]
    for split in splits:
        result = row["splits"].get(split)
        cells += ["-", "-"] if result is None else _of_split(result)
    return cells


def _of_split(result):
    """The accuracy with its interval, and how many modules are above 95%."""
    accuracy, solved = f"{result['accuracy']:.2%}", result.get("solved", "-")
    if "low" in result:
        accuracy += f" ({result['low']:.1%} to {result['high']:.1%})"
        solved = f"{solved} of {result['modules']}"
    return [accuracy, str(solved)]


def table_notes(report):
    """What has to be said of the table.

    Args:
        report: See `table_cells`.

    Returns:
        List of sentences.
    """
    problems = report["problems"]
    notes = [
        "An answer is right if all its characters are; it is decoded greedily. "
        "An accuracy is the mean over modules, each of which counts alike, "
        f"of at most {problems['examples']} problems of each, the same for "
        "all models. In brackets, what it is with 95% confidence "
        "(MOVER of Wilson's intervals of the modules).",
        ">95%: modules with an accuracy above 95%.",
        "Published rows are the paper's figures, of all 56 modules and of "
        "splits of its own; nothing of them was computed here.",
    ]
    if "train" in problems["splits"]:
        notes.append(
            "train: problems of the training splits, those that a training "
            "sets apart for validation last (see docs/report.md)."
        )
    for model in report["models"]:
        for split, result in model["splits"].items():
            if result["unread"]:
                notes.append(
                    f"{model['name']} cannot read {result['unread']} of the "
                    f"{result['examples']} questions of {split}, for their "
                    "length or a character: they count as wrong."
                )
    return notes


def markdown_table(report):
    """The table and its notes in Markdown.

    Args:
        report: See `table_cells`.

    Returns:
        A text.
    """
    header, *rows = table_cells(report)
    rule = ["---", *["---:"] * (len(header) - 1)]
    lines = [f"| {' | '.join(row)} |" for row in (header, rule, *rows)]
    notes = [textwrap.fill(note, 80) for note in table_notes(report)]
    return "\n\n".join(["\n".join(lines), *notes]) + "\n"
