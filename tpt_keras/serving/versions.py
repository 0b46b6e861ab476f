"""Versions of an exported model: numbered folders, as TF Serving wants them."""

import pathlib

from tpt_keras.errors import UsageError

# The model's configuration, beside the graph; TF Serving passes it over.
CONFIG_ASSET = "assets.extra/tpt_keras.json"


def version_numbers(export_dir):
    """Numbers of the versions in a folder.

    Args:
        export_dir: Folder of a model's versions.

    Returns:
        List of integers.
    """
    return [
        int(path.name)
        for path in pathlib.Path(export_dir).glob("*")
        if path.is_dir() and path.name.isdecimal()
    ]


def find_saved_model(path):
    """The SavedModel at a path, or the newest of the versions there.

    Args:
        path: A SavedModel, or the folder of its versions.

    Returns:
        Path of a SavedModel.

    Raises:
        UsageError: If there is none.
    """
    path = pathlib.Path(path)
    numbers = version_numbers(path)
    newest = path / str(max(numbers)) if numbers else path
    if not (newest / "saved_model.pb").is_file():
        raise UsageError(
            f"There is no SavedModel in {str(path)!r}. Make one with python -m "
            "experiments.export."
        )
    return newest
