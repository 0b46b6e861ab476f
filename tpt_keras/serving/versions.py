"""Versions of an exported model: numbered folders, as TF Serving wants them."""

import pathlib
import re

from tpt_keras.errors import UsageError
from tpt_keras.errors import command

# The model's configuration, beside the graph; TF Serving passes it over.
CONFIG_ASSET = "assets.extra/tpt_keras.json"
# Requests that TF Serving makes to itself before it says that it is ready.
WARMUP_ASSET = "assets.extra/tf_serving_warmup_requests"

# TF Serving holds numbers in 64 bits, and passes over what is larger.
LAST_VERSION = 2**63 - 1


def version_paths(export_dir):
    """The versions in a folder.

    As TF Serving finds them: leading zeros are no part of a number, and of
    several folders with one number one is taken.

    Args:
        export_dir: Folder of a model's versions.

    Returns:
        Dict of numbers to paths.
    """
    paths = sorted(
        (
            path
            for path in pathlib.Path(export_dir).glob("*")
            if re.fullmatch("[0-9]+", path.name)
            and int(path.name) <= LAST_VERSION
            and path.is_dir()
        ),
        # The one without zeros is the last to come.
        key=lambda path: -len(path.name),
    )
    return {int(path.name): path for path in paths}


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
    versions = version_paths(path)
    newest = versions[max(versions)] if versions else path
    if not (newest / "saved_model.pb").is_file():
        raise UsageError(
            f"There is no SavedModel in {str(path)!r}. Make one with "
            f"{command('export')}."
        )
    return newest
