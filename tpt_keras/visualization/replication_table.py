"""The paper's Table 1, scaled down, as text."""

import textwrap

_BASE = "tp_transformer"


def replication_table(rows, splits):
    """A table in Markdown, of which each row is several trainings.

    Args:
        rows: What `replication_rows` gives.
        splits: Names of the splits.

    Returns:
        A text.
    """
    header = ["model", "weights", "at the paper's size", "seeds", *splits]
    rule = ["---", *["---:"] * (len(header) - 1)]
    base = {row["name"]: row for row in rows}.get(_BASE)
    cells = [header, rule, *(_cells(row, base, splits) for row in rows)]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    notes = [
        "Accuracy is the mean over modules, each of which counts alike, and "
        "over seeds; in brackets that of the lowest and of the highest seed. "
        "With as few seeds, two rows whose brackets overlap are not told "
        "apart.",
    ]
    if base:
        notes.append(f"Percents of weights are of {_BASE}'s.")
    notes = [textwrap.fill(note, 80) for note in notes]
    return "\n\n".join(["\n".join(lines), *notes]) + "\n"


def _cells(row, base, splits):
    cells = [row["name"]]
    for name in ("weights", "paper_weights"):
        share = f" ({row[name] / base[name]:.0%})" if base else ""
        cells.append(f"{row[name]:,}{share}")
    cells.append(str(row["seeds"]))
    for split in splits:
        result = row["splits"].get(split)
        cells.append("-" if result is None else _accuracy(result))
    return cells


def _accuracy(result):
    return (
        f"{result['mean']:.1%} ({result['lowest']:.1%} to "
        f"{result['highest']:.1%})"
    )
