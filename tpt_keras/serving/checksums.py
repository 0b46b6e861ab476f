"""Whether an exported model's files are what was exported.

TensorFlow looks at the checksums of its weights alone: another bit in the
graph, and it loads and answers something else.
"""

import hashlib
import pathlib

from tpt_keras.errors import UsageError
from tpt_keras.errors import command

# As sha256sum writes and checks them, in the version's folder:
#     sha256sum --check assets.extra/SHA256SUMS
CHECKSUMS_ASSET = "assets.extra/SHA256SUMS"


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


def check_checksums(folder):
    """Refuses a SavedModel whose files are not those that were exported.

    One without checksums, of another program or an old version, is not
    refused.

    Args:
        folder: The SavedModel.

    Raises:
        UsageError: With the file that is damaged or missing.
    """
    folder = pathlib.Path(folder)
    checksums = folder / CHECKSUMS_ASSET
    if not checksums.exists():
        return
    for line in checksums.read_bytes().splitlines():
        expected, _, name = line.decode(errors="replace").partition("  ")
        try:
            is_whole = _checksum(folder / name) == expected
        except (OSError, ValueError):
            is_whole = False
        if not is_whole:
            raise UsageError(
                f"The SavedModel {str(folder)!r} is damaged: its file "
                f"{name[:100]!r} is not what was exported. Copy it again, or "
                f"export it anew with {command('export')}."
            )


def _checksum(path):
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
