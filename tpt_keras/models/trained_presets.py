"""The trained models that come with the project, each a preset of its own."""

import pathlib

from tpt_keras.errors import UsageError
from tpt_keras.models.compressed_model import COMPRESSED_FILE
from tpt_keras.models.compressed_model import CompressedModel

TRAINED_PRESETS = ("tp_transformer_mathematics",)
_PACKAGE = pathlib.Path(__file__).parents[1]
# Where they lie: in an installed package, and in a checkout.
_PLACES = (_PACKAGE / "saved_models", _PACKAGE.parent / "saved_models")


def trained_preset(name):
    """A trained model that comes with the project.

    Args:
        name: One of `TRAINED_PRESETS`.

    Returns:
        A `CompressedModel`.

    Raises:
        UsageError: If it is not where it should be, or damaged.

    Example:

    >>> trained_preset("tp_transformer_mathematics").config.num_layers
    6
    """
    paths = [place / name / COMPRESSED_FILE for place in _PLACES]
    for path in paths:
        if path.is_file():
            return CompressedModel.read(path)
    raise UsageError(
        f"The weights of the preset {name!r} are not here: {COMPRESSED_FILE} "
        f"is neither in {str(paths[0].parent)!r} nor in "
        f"{str(paths[1].parent)!r}. Install the package again, or copy the "
        f"file from saved_models/{name} of its sources."
    )
