from matplotlib.figure import Figure

_COLUMNS = 3  # at most


def draw_choices(trials, objective, path):
    """Draws which choice mattered: a panel for every hyperparameter.

    A dot is a trial; a bar is the mean of those that chose the same.

    Args:
        trials: List of dicts with `hyperparameters`, a dict, and `score`.
        objective: Name of the score.
        path: PNG file to write.
    """
    values = searched_values(trials)
    columns = max(1, min(len(values), _COLUMNS))
    rows = max(1, -(-len(values) // columns))
    figure = Figure(figsize=(4 * columns, 3 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True)
    panels = list(panels.flat)
    for axes, (name, known) in zip(panels, values.items()):
        points = [
            (trial["hyperparameters"][name], trial["score"])
            for trial in trials
            if name in trial["hyperparameters"]
        ]
        if is_rate(name):
            axes.semilogx(*zip(*points), "o", alpha=0.6)
        else:
            _draw_groups(axes, points, known)
        axes.set_xlabel(name)
        axes.grid(alpha=0.3)
    for axes in panels[len(values) :]:
        axes.remove()
    figure.supylabel(objective)
    figure.savefig(path, dpi=120)


def _draw_groups(axes, points, known):
    """Dots over the values that they chose, and their means."""
    axes.plot(
        [known.index(value) for value, _ in points],
        [score for _, score in points],
        "o",
        alpha=0.6,
    )
    for place, value in enumerate(known):
        scores = [score for chosen, score in points if chosen == value]
        axes.plot(
            [place - 0.2, place + 0.2],
            [sum(scores) / len(scores)] * 2,
            color="black",
        )
    axes.set_xlim(-0.5, len(known) - 0.5)
    turn = 20 if isinstance(known[0], str) and len(known) > 2 else 0
    axes.set_xticks(range(len(known)), map(str, known), rotation=turn)


def searched_values(trials):
    """The hyperparameters that differ among trials, and their values.

    Args:
        trials: List of dicts with `hyperparameters`, a dict.

    Returns:
        Dict of names to sorted lists.
    """
    values = {}
    for trial in trials:
        for name, value in trial["hyperparameters"].items():
            values.setdefault(name, set()).add(value)
    return {
        name: sorted(known) for name, known in values.items() if len(known) > 1
    }


def is_rate(name):
    """Whether a hyperparameter is a number to be drawn on a log scale."""
    return name.endswith("learning_rate")
