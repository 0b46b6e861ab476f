"""The end of every figure."""

from matplotlib.figure import Figure

from tpt_keras.typing import StrPath


def finished(figure: Figure, path: StrPath | None) -> Figure:
    """Writes a figure, if there is a path, and returns it."""
    if path is not None:
        figure.savefig(path)
    return figure
