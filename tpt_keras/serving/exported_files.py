"""The files of exported models: numbered versions, assets and checksums."""

import hashlib
import pathlib
import re

from tpt_keras.errors import UnreadableFileError
from tpt_keras.errors import UsageError

# The model's configuration, which TF Serving ignores.
CONFIG_ASSET = "assets.extra/tpt_keras.json"
# Requests that TF Serving replays before it reports a version as available.
WARMUP_ASSET = "assets.extra/tf_serving_warmup_requests"
# In the format of sha256sum.
CHECKSUMS_ASSET = "assets.extra/SHA256SUMS"


def version_paths(export_dir):
    """Finds the versions in a folder.

    Args:
        export_dir: Folder of a model's versions.

    Returns:
        Dict of numbers to paths.
    """
    return {
        int(path.name): path
        for path in pathlib.Path(export_dir).glob("*")
        if re.fullmatch("[0-9]+", path.name) and path.is_dir()
    }


def find_saved_model(path):
    """Finds the SavedModel at a path or its newest version.

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
            f"There is no SavedModel in {str(path)!r}. Export a model first.",
            path=path,
            remedy=("export", {}),
        )
    return newest


def write_checksums(folder):
    """Writes the checksums of all files in a folder.

    Args:
        folder: The SavedModel.
    """
    folder = pathlib.Path(folder)
    lines = [
        f"{_checksum(path)}  {path.relative_to(folder).as_posix()}\n"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]
    (folder / CHECKSUMS_ASSET).write_text("".join(lines))


def verify_checksums(folder):
    """Raises an error if a file of a SavedModel differs from its checksum.

    TensorFlow verifies only its weights: with a flipped bit in the graph it
    gives other answers or crashes. A SavedModel without checksums passes.

    Args:
        folder: The SavedModel.

    Raises:
        UnreadableFileError: With the damaged or missing file.
    """
    folder = pathlib.Path(folder)
    checksums = folder / CHECKSUMS_ASSET
    if not checksums.exists():
        return
    for line in checksums.read_bytes().splitlines():
        expected, _, name = line.decode(errors="replace").partition("  ")
        try:
            is_intact = _checksum(folder / name) == expected
        except (OSError, ValueError):
            is_intact = False
        if not is_intact:
            raise UnreadableFileError(
                f"The SavedModel {str(folder)!r} is damaged: its file "
                f"{name[:100]!r} is missing or differs from its checksum. "
                "Copy it again, or export it again.",
                path=folder / name[:100],
                remedy=("export", {}),
            )


def _checksum(path):
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
