"""Colours of all figures, and their writing to files."""

from matplotlib.figure import Figure

from tpt_keras.typing import StrPath

# Okabe and Ito's colours, which readers who see fewer of them tell apart,
# without yellow and black.
OKABE_ITO = (
    *("#0072B2", "#D55E00", "#009E73"),
    *("#CC79A7", "#E69F00", "#56B4E9"),
)


def finished(figure: Figure, path: StrPath | None) -> Figure:
    """Writes a figure, if there is a path, and returns it."""
    if path is not None:
        figure.savefig(path)
    return figure
