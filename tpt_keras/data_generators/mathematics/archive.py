"""The Mathematics Dataset's official text files, and its released archive.

A problem takes two lines, its question and its answer:

    mathematics_dataset-v1.0/train-easy/numbers__place_value.txt
    mathematics_dataset-v1.0/interpolate/...
    mathematics_dataset-v1.0/extrapolate/numbers__place_value_big.txt

An extrapolation module has a name of its own.
"""

import contextlib
import logging
import lzma
import pathlib
import shutil
import sys
import tarfile
import zlib

import keras
import tqdm

from tpt_keras.data_generators.mathematics.modules import EXTRAPOLATION_MODULES
from tpt_keras.data_generators.mathematics.modules import SPLITS
from tpt_keras.errors import UsageError
from tpt_keras.files import folder_lock
from tpt_keras.files import remove_partial
from tpt_keras.files import whole_file
from tpt_keras.tokenizers.character_tokenizer import CHARACTERS

logger = logging.getLogger(__name__)

URL = (
    "https://storage.googleapis.com/mathematics-dataset/"
    "mathematics_dataset-v1.0.tar.gz"
)
SHA256 = "def638343403cb9ed60437d6b684c859dd23b72779f5cc5661b0a31e67c58576"
FOLDER = "mathematics_dataset-v1.0"
_EXTRAPOLATION_OF = {
    training: extra for extra, training in EXTRAPOLATION_MODULES.items()
}


def split_module(split, module):
    """Name of the module that holds a training module's problems of a split.

    It is `None` if the module lacks the split. Most have no extrapolation.
    """
    return _EXTRAPOLATION_OF.get(module) if split == "extrapolate" else module


def text_path(root, split, module):
    """File of a training module's problems of a split, or `None`."""
    name = split_module(split, module)
    if name is None:
        return None
    return pathlib.Path(root) / split.replace("_", "-") / f"{name}.txt"


def write_problems(path, problems):
    """Writes pairs of question and answer to a file, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        whole_file(path) as partial,
        partial.open("w", encoding="ascii") as file,
    ):
        for question, answer in problems:
            file.write(f"{question}\n{answer}\n")


def read_problems(path):
    """Reads the problems of one file.

    Args:
        path: The file.

    Yields:
        Pairs of question and answer.

    Raises:
        UsageError: If the file is missing, empty or cut off, or holds a
            character outside the vocabulary.
    """
    if not path.is_file():
        raise UsageError(
            f"The file {path.parent.name}/{path.name} is missing below "
            f"{str(path.parent.parent)!r}. Restore it, or leave its module out."
        )
    known = set(CHARACTERS)
    question = None
    number = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            text = line.rstrip(b"\r\n").decode("latin-1")
            unknown = next((c for c in text if c not in known), None)
            if unknown is not None:
                raise UsageError(
                    f"Module {path.stem} ({path.parent.name}), line {number}: "
                    f"the character {unknown!r} is not in the vocabulary. "
                    "The file is damaged or of another dataset."
                )
            if not text:
                raise UsageError(
                    f"Module {path.stem} ({path.parent.name}), line {number} "
                    "is empty. The file is damaged or of another dataset."
                )
            if number % 2:
                question = text
            elif line.endswith(b"\n"):
                yield question, text
    if number == 0 or number % 2 or not line.endswith(b"\n"):
        raise UsageError(
            f"The file {path} is {'empty' if number == 0 else 'cut off'} (it "
            f"has {number} lines). Fetch or generate it again."
        )


def fetch_official_text(data_dir, modules, archive=None):
    """Downloads and unpacks the files that are missing.

    Args:
        data_dir: The data folder, to download and to unpack to.
        modules: Names of training modules.
        archive: An archive or its unpacked folder. Defaults to a download.

    Returns:
        Path of the folder that holds `mathematics_dataset-v1.0`.

    Raises:
        UsageError: If the archive is missing, damaged or another one, or if
            another process downloads or unpacks it.
    """
    if archive is None:
        archive = _download(data_dir)
    archive = pathlib.Path(archive)
    if archive.is_dir():
        for folder in (archive, archive.parent):
            if (folder / FOLDER / "interpolate").is_dir():
                return folder
        raise UsageError(
            f"The folder {str(archive)!r} holds no {FOLDER}. "
            "Name the folder that the archive was unpacked to."
        )
    if not archive.is_file():
        raise UsageError(f"There is no archive {str(archive)!r}.")
    text_dir = pathlib.Path(data_dir) / "official"
    with folder_lock(text_dir, "unpacks an archive"):
        _unpack(archive, text_dir / FOLDER, modules)
    return text_dir


def _download(data_dir):
    if not sys.stdout.isatty():
        # Keras would draw its bar, of control characters, into a file.
        logger.info("Downloading %s.", URL)
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
    except Exception as error:  # Keras raises errors of many kinds
        raise UsageError(
            f"The download of {URL} failed ({error}). Name a copy of yours as "
            "`archive`, or generate the problems (`source`)."
        ) from error
    finally:
        keras.utils.enable_interactive_logging()


def _unpack(archive, root, modules):
    """Unpacks the modules' files, all of them whole or none."""
    wanted = {
        f"{FOLDER}/{path.relative_to(root)}": path
        for module in modules
        for split in SPLITS
        if (path := text_path(root, split, module)) and not path.exists()
    }
    if not wanted:
        return
    for path in wanted.values():
        remove_partial(path)
    # Files get their names after the whole archive was read without damage.
    with contextlib.ExitStack() as stack:
        try:
            missing = _copy_members(archive, wanted, stack)
        except (tarfile.TarError, lzma.LZMAError, zlib.error) as error:
            raise _damaged(archive, error) from error
        except (EOFError, OSError) as error:
            if getattr(error, "errno", None):
                raise  # of the disk: bz2 and gzip give no number
            raise _damaged(archive, error) from error
        if missing:
            raise UsageError(
                f"{archive} lacks {min(missing)}: it is cut off or another "
                f"archive. The right one is {URL}."
            )


def _copy_members(archive, wanted, stack):
    """Copies members into files that `stack` completes; names missing ones."""
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
        # tarfile takes damage for the end. The checksum lies behind it.
        while tar.fileobj.read(1 << 20):
            pass
    return wanted.keys() - partials.keys()


def _damaged(archive, error):
    reason = str(error).partition("\n")[0] or type(error).__name__
    return UsageError(
        f"{archive} is not a complete tar archive ({reason}). Fetch it again: "
        f"{URL}."
    )
