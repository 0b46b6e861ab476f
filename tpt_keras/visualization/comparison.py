from matplotlib.figure import Figure


def draw_comparison(runs, path, metric="val_sequence_accuracy"):
    """Draws one metric of several trainings over their steps.

    Args:
        runs: Dict of a title to a dict of names to rows of metrics, as
            `read_metrics` returns them: a diagram for every title.
        path: PNG file to write.
        metric: Name of the metric.
    """
    figure = Figure(figsize=(4.5 * len(runs), 3.5), layout="constrained")
    [diagrams] = figure.subplots(1, len(runs), squeeze=False)
    for axes, (title, trainings) in zip(diagrams, runs.items()):
        for name, rows in trainings.items():
            points = [
                (row["step"], row[metric]) for row in rows if metric in row
            ]
            axes.plot(
                [step for step, _ in points],
                [value for _, value in points],
                marker="o",
                markersize=3,
                label=name,
            )
        axes.set_title(title)
        axes.set_xlabel("optimizer steps")
        axes.set_ylabel(metric)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)
