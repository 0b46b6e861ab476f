"""The released archive of the Mathematics Dataset."""

import contextlib
import lzma
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
from tpt_keras.files import folder_lock
from tpt_keras.files import remove_partial
from tpt_keras.files import whole_file

URL = (
    "https://storage.googleapis.com/mathematics-dataset/"
    "mathematics_dataset-v1.0.tar.gz"
)
SHA256 = "def638343403cb9ed60437d6b684c859dd23b72779f5cc5661b0a31e67c58576"


def fetch_official_text(data_dir, modules, archive=None):
    """Downloads and unpacks what is not there yet.

    Args:
        data_dir: The data folder, to download and to unpack to.
        modules: Names of the training modules that are wanted.
        archive: The archive or its unpacked folder, where the user has it.
            Defaults to a download.

    Returns:
        Path of the folder that holds `mathematics_dataset-v1.0`.

    Raises:
        UsageError: If there is no such archive, it is damaged or not the right
            one, or another process is at it.
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
    with folder_lock(text_dir, "unpacks an archive"):
        _unpack(archive, text_dir / official_text.FOLDER, modules)
    return text_dir


def _download(data_dir):
    if not sys.stdout.isatty():
        # Its bar is made of control characters, wherever it is written to.
        print(f"Downloading {URL}.")
        keras.utils.disable_interactive_logging()
    folder = pathlib.Path(data_dir) / "downloads"
    try:
        with folder_lock(folder, "downloads the archive"):
            return keras.utils.get_file(
                URL.rpartition("/")[2],
                URL,
                file_hash=SHA256,
                cache_dir=data_dir,
                cache_subdir=folder.name,
            )
    except UsageError:
        raise
    except Exception as error:  # what Keras raises, whatever went wrong
        raise UsageError(
            f"The download of {URL} failed ({error}). Name a copy of yours "
            "with --archive, or let the problems be made with "
            "--source=generated."
        ) from error
    finally:
        keras.utils.enable_interactive_logging()


def _unpack(archive, root, modules):
    """Unpacks the modules' files, all of them whole or none."""
    wanted = {
        f"{official_text.FOLDER}/{path.relative_to(root)}": path
        for module in modules
        for split in SPLITS
        if (path := official_text.text_path(root, split, module))
        and not path.exists()
    }
    if not wanted:
        return
    for path in wanted.values():
        remove_partial(path)
    # Files get their names when all was read, and nothing was damaged.
    with contextlib.ExitStack() as stack:
        try:
            missing = _copy_members(archive, wanted, stack)
        except (tarfile.TarError, lzma.LZMAError, zlib.error) as error:
            raise _damaged(archive, error) from error
        except (EOFError, OSError) as error:
            if getattr(error, "errno", None):
                raise  # the disk's, where bz2 and gzip give no number
            raise _damaged(archive, error) from error
        if missing:
            raise UsageError(
                f"{archive} lacks {min(missing)}: it is cut off or another "
                f"archive. The right one is {URL}."
            )


def _copy_members(archive, wanted, stack):
    """Copies members into files that `stack` makes whole.

    Args:
        archive: The archive.
        wanted: Dict of member names to paths.
        stack: A `contextlib.ExitStack`.

    Returns:
        Names of those that are not in the archive.
    """
    partials = {}
    with (
        tarfile.open(archive) as tar,
        tqdm.tqdm(tar, desc=f"Unpacking {archive.name}") as members,
    ):
        for member in members:
            name = member.name.removeprefix("./")
            if name not in wanted or not member.isfile():
                continue
            if name not in partials:
                wanted[name].parent.mkdir(parents=True, exist_ok=True)
                partials[name] = stack.enter_context(whole_file(wanted[name]))
            with partials[name].open("wb") as file:
                shutil.copyfileobj(tar.extractfile(member), file)
        # To the end, where the checksum is: tarfile takes damage for it.
        while tar.fileobj.read(1 << 20):
            pass
    return wanted.keys() - partials.keys()


def _damaged(archive, error):
    reason = str(error).partition("\n")[0] or type(error).__name__
    return UsageError(
        f"{archive} is no whole tar archive ({reason}). Fetch it again: {URL}."
    )
