"""Tables in Markdown: accuracies beside the paper's, and replications."""

import textwrap

_HEADER = ("model", "weights", "steps")
# The model whose weights are the measure of a replication.
_BASE = "tp_transformer"


def table_cells(report):
    """Returns the texts of a report's table.

    Args:
        report: Dict of `models` and `published`, lists of rows with `name`,
            `weights`, `step` and `splits`; and `problems` with the names of
            the `splits` and the number of `examples`.

    Returns:
        List of lists of strings, the header first.
    """
    splits = report["problems"]["splits"]
    header = [*_HEADER]
    for split in splits:
        header += [split, ">95%"]
    rows = [*report["models"], *report["published"]]
    return [header, *(_row(each, splits) for each in rows)]


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
        cells += ["-", "-"] if result is None else _accuracy_and_solved(result)
    return cells


def _accuracy_and_solved(result):
    accuracy, solved = f"{result['accuracy']:.2%}", result.get("solved", "-")
    if "low" in result:
        accuracy += f" ({result['low']:.1%} to {result['high']:.1%})"
        solved = f"{solved} of {result['modules']}"
    return [accuracy, str(solved)]


def table_notes(report):
    """Returns the notes below a report's table.

    Args:
        report: See `table_cells`.

    Returns:
        List of paragraphs.
    """
    problems = report["problems"]
    notes = [
        "An answer is right if all its characters are. It is decoded greedily. "
        "An accuracy is the mean over modules, each with the same weight, of "
        f"at most {problems['examples']} problems per module, the same for all "
        "models. The 95% confidence interval is in brackets (MOVER of the "
        "modules' Wilson intervals).",
        ">95%: modules with an accuracy above 95%.",
        "Published rows are the paper's figures, of all 56 modules and of its "
        "own splits. They were not computed here.",
    ]
    if "train" in problems["splits"]:
        notes.append(
            "train: problems of the training splits, from the end that a "
            "training reserves for validation last (see docs/report.md)."
        )
    for model in report["models"]:
        for split, result in model["splits"].items():
            if result["unread"]:
                notes.append(
                    f"{model['name']} cannot read {result['unread']} of the "
                    f"{result['examples']} questions of {split}, for their "
                    "length or a character. They count as wrong."
                )
    return notes


def markdown_table(report):
    """Returns a report's table and its notes in Markdown.

    Args:
        report: See `table_cells`.

    Returns:
        A string.
    """
    return _markdown(table_cells(report), table_notes(report))


def _markdown(cells, notes):
    header, *rows = cells
    rule = ["---", *["---:"] * (len(header) - 1)]
    lines = [f"| {' | '.join(row)} |" for row in (header, rule, *rows)]
    notes = [textwrap.fill(note, 80) for note in notes]
    return "\n\n".join(["\n".join(lines), *notes]) + "\n"


def replication_table(rows, splits):
    """Returns the table of a replication in Markdown.

    Args:
        rows: Result of `replication_rows`, one row per model.
        splits: Names of the splits.

    Returns:
        A string.
    """
    header = ["model", "weights", "at the paper's size", "seeds", *splits]
    base = {row["name"]: row for row in rows}.get(_BASE)
    notes = [
        "Accuracy is the mean over modules, each with the same weight, and "
        "over seeds. The lowest and the highest seed are in brackets. With so "
        "few seeds, rows with overlapping brackets do not differ.",
    ]
    if base:
        notes.append(f"Percentages of weights are of {_BASE}'s.")
    cells = [_replication_row(row, base, splits) for row in rows]
    return _markdown([header, *cells], notes)


def _replication_row(row, base, splits):
    cells = [row["name"]]
    for name in ("weights", "paper_weights"):
        share = f" ({row[name] / base[name]:.0%})" if base else ""
        cells.append(f"{row[name]:,}{share}")
    cells.append(str(row["seeds"]))
    for split in splits:
        result = row["splits"].get(split)
        cells.append("-" if result is None else _range(result))
    return cells


def _range(result):
    return (
        f"{result['mean']:.1%} ({result['lowest']:.1%} to "
        f"{result['highest']:.1%})"
    )
