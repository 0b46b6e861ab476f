"""The released archive of the Mathematics Dataset."""

import gzip
import pathlib
import shutil
import sys
import tarfile
import zlib

import keras
import tqdm

from tpt_keras.data_generators import official_text
from tpt_keras.data_generators.mathematics_modules import SPLITS
from tpt_keras.errors import UsageError

URL = (
    "https://storage.googleapis.com/mathematics-dataset/"
    "mathematics_dataset-v1.0.tar.gz"
)
SHA256 = "def638343403cb9ed60437d6b684c859dd23b72779f5cc5661b0a31e67c58576"


def find_text_dir(data_dir, modules, archive=None):
    """The folder that holds `mathematics_dataset-v1.0`, unpacked.

    Args:
        data_dir: The data folder, to download and to unpack to.
        modules: Names of the training modules that are wanted.
        archive: The archive or its unpacked folder, where the user has it.
            Defaults to a download.

    Returns:
        A path.

    Raises:
        UsageError: If there is no such archive, or it is not the right one.
    """
    if archive is None:
        archive = _download(data_dir)
    archive = pathlib.Path(archive)
    if archive.is_dir():
        for folder in (archive, archive.parent):
            if (folder / official_text.FOLDER / "interpolate").is_dir():
                return folder
        raise UsageError(
            f"The folder {str(archive)!r} holds no {official_text.FOLDER}. "
            "Name the folder that the archive was unpacked to."
        )
    if not archive.is_file():
        raise UsageError(f"There is no archive {str(archive)!r}.")
    text_dir = pathlib.Path(data_dir) / "official"
    _unpack(archive, text_dir, modules)
    return text_dir


def _download(data_dir):
    if not sys.stdout.isatty():
        # Its bar is made of control characters, wherever it is written to.
        print(f"Downloading {URL}.")
        keras.utils.disable_interactive_logging()
    try:
        return keras.utils.get_file(
            URL.rpartition("/")[2],
            URL,
            file_hash=SHA256,
            cache_dir=data_dir,
            cache_subdir="downloads",
        )
    except Exception as error:  # what Keras raises, whatever went wrong
        raise UsageError(
            f"The download of {URL} failed ({error}). Name a copy of yours "
            "with --archive, or let the problems be made with "
            "--source=generated."
        ) from error
    finally:
        keras.utils.enable_interactive_logging()


def _unpack(archive, text_dir, modules):
    """Unpacks the modules' files, all of them whole or none."""
    root = text_dir / official_text.FOLDER
    wanted = {
        f"{official_text.FOLDER}/{path.relative_to(root)}": path
        for module in modules
        for split in SPLITS
        if (path := official_text.text_path(root, split, module))
        and not path.exists()
    }
    if not wanted:
        return
    unpacked = {}
    try:
        with (
            tarfile.open(archive) as tar,
            tqdm.tqdm(tar, desc=f"Unpacking {archive.name}") as members,
        ):
            for member in members:
                path = wanted.get(member.name.removeprefix("./"))
                if path is None or not member.isfile():
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                partial = path.with_suffix(".partial")
                with partial.open("wb") as file:
                    shutil.copyfileobj(tar.extractfile(member), file)
                unpacked[partial] = path
            # To the end, where the checksum is: tarfile takes damage for it.
            while tar.fileobj.read(1 << 20):
                pass
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise UsageError(
            f"{archive} is no whole tar archive "
            f"({str(error).splitlines()[0]}). Fetch it again: {URL}."
        ) from error
    for partial, path in unpacked.items():
        partial.replace(path)
    if not unpacked:
        raise UsageError(
            f"{archive} holds no {official_text.FOLDER} with these modules: it "
            f"is another archive. The right one is {URL}."
        )
