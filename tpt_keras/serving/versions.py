"""Folders of exported models, a numbered version each."""

import contextlib
import logging
import pathlib
import re
from collections.abc import Iterator

from tpt_keras.errors import UsageError
from tpt_keras.files import folder_lock
from tpt_keras.files import whole_folder
from tpt_keras.typing import StrPath

# What to do about an export that cannot be read.
ADVICE = (
    "It is damaged, or of another program. Copy it again, or export it again."
)
_log = logging.getLogger(__name__)


def version_paths(export_dir: StrPath) -> dict[int, pathlib.Path]:
    """Returns a dict of the numbers to the paths of a folder's versions."""
    return {
        int(path.name): path
        for path in pathlib.Path(export_dir).glob("*")
        if re.fullmatch("[0-9]+", path.name) and path.is_dir()
    }


def newest_version(path: StrPath, file: str, kind: str) -> pathlib.Path:
    """Returns the path of the export at a path or of its newest version.

    Args:
        path: An export, or the folder of its versions.
        file: Name of a file that every export of this kind has.
        kind: Name of the kind, for messages.

    Raises:
        UsageError: If there is none.
    """
    path = pathlib.Path(path)
    versions = version_paths(path)
    newest = versions[max(versions)] if versions else path
    if not (newest / file).is_file():
        raise UsageError(
            f"There is no {kind} in {str(newest)!r}: it has no {file}. Name an "
            "export, or make one.",
            path=path,
        )
    return newest


@contextlib.contextmanager
def new_version(
    export_dir: StrPath, file: str
) -> Iterator[tuple[pathlib.Path, pathlib.Path]]:
    """Makes the next version in a folder: it gets its number when it is whole.

    Args:
        export_dir: Folder of the versions.
        file: Name of a file that every export of this kind has.

    Yields:
        Path of the version, and a path to make its folder at.

    Raises:
        UsageError: If another process exports to the folder, or it has exports
            of another kind.
    """
    export_dir = pathlib.Path(export_dir)
    with folder_lock(export_dir, "exports"):
        versions = version_paths(export_dir)
        version = export_dir / str(max(versions, default=0) + 1)
        # A file may have the version's name.
        files = [path for path in export_dir.iterdir() if path == version]
        for path in (*versions.values(), *files):
            if not (path / file).is_file():
                raise UsageError(
                    f"{str(path)!r} is no export of the same format: it has no "
                    f"{file}. Move it away, or choose another `export_dir`.",
                    field="export_dir",
                    path=path,
                )
        _log.info("Writing %s, which may take minutes.", version)
        with whole_folder(version) as partial:
            yield version, partial


@contextlib.contextmanager
def quiet(name):
    """Hides warnings of a logger."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
