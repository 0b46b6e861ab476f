"""The trained presets, and the folders of trained models by their names.

The weights are no part of the package. They are looked for in
`saved_models/` of the working directory, in that of a checkout and in Keras's
cache, and are downloaded into the cache if they are nowhere.
"""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import sys

from tpt_keras.errors import UsageError
from tpt_keras.errors import disk_fault
from tpt_keras.errors import require
from tpt_keras.files import folder_lock
from tpt_keras.files import one_line
from tpt_keras.files import whole_folder
from tpt_keras.typing import StrPath

HUB = "hf://"
# The address of a folder with a folder for each trained preset.
URL_VARIABLE = "TPT_KERAS_MODELS_URL"


@dataclasses.dataclass(frozen=True)
class TrainedPreset:
    """The published folder of a trained preset.

    Args:
        digests: Dict of the names of its files to their SHA-256.
        url: The folder's address, to which `/` and a file's name are added.
            Empty: it is not published.
    """

    digests: dict
    url: str = ""


TRAINED_PRESETS = {
    "tp_transformer_mathematics": TrainedPreset(
        digests={
            "config.json": (
                "d466b80fe01731e256b7bd2cc3d7630b"
                "f1202be96db760b7d787ec7e297a8cf9"
            ),
            "model.int8.safetensors": (
                "640653dd3ed79de46ab4bf7cfacd5139"
                "e9ac2ddeb58ea8488c99294352ea972e"
            ),
        },
    ),
}
# Of the working directory, and of a checkout.
PLACES = (
    pathlib.Path("saved_models"),
    pathlib.Path(__file__).parents[1] / "saved_models",
)


def is_name(source: StrPath) -> bool:
    """Returns `True` for a trained preset's name and for `hf://user/name`."""
    return str(source).startswith(HUB) or str(source) in TRAINED_PRESETS


def find_model(source: StrPath) -> pathlib.Path:
    """Returns the path of a model's folder, downloaded if necessary.

    Args:
        source: The folder, or a file in its place; the name of a trained
            preset; or `hf://user/name`, a model on the Hugging Face Hub. A
            folder with the name of a preset comes first.

    Raises:
        UsageError: If it cannot be downloaded.
    """
    if str(source).startswith(HUB):
        return _hub_folder(str(source))
    path = pathlib.Path(source)
    if str(source) in TRAINED_PRESETS and not path.exists():
        return trained_folder(str(source))
    return path


def trained_folder(name: str) -> pathlib.Path:
    """Returns the folder of a trained preset, downloaded if necessary.

    Raises:
        UsageError: If it is nowhere, cannot be downloaded, or is not the one
            that was published.
    """
    trained = TRAINED_PRESETS[name]
    cached = _cache_folder(name)
    folders = [*(place / name for place in PLACES), cached]
    for folder in folders:
        if _is_whole(folder, trained.digests):
            return folder
    url = trained.url
    if os.environ.get(URL_VARIABLE):
        url = f"{os.environ[URL_VARIABLE].rstrip('/')}/{name}"
    with _downloading(
        f"The weights of the preset {name!r}",
        f" from {url}" if url else "",
        f"Their files ({', '.join(trained.digests)}) are in none of the "
        f"folders {', '.join(map(str, folders))}. Name their folder instead of "
        f"the preset (saved_models/{name} of a clone of the project), or set "
        f"{URL_VARIABLE} to an address that has {name}/.",
    ):
        if not url:
            raise ValueError("no address is known")
        _download(url, trained.digests, cached)
    return cached


def _is_whole(folder, digests):
    return all((folder / name).is_file() for name in digests)


def _cache_folder(name):
    """The folder of a trained preset in Keras's cache, for these weights."""
    # As Keras does, also for a user without a home.
    base = "~" if os.access(os.path.expanduser("~"), os.W_OK) else "/tmp"
    home = os.environ.get("KERAS_HOME", f"{base}/.keras")
    digests = TRAINED_PRESETS[name].digests.values()
    version = "-".join(digest[:8] for digest in digests)
    home = os.path.expanduser(home)
    return pathlib.Path(home, "models", "tpt_keras", f"{name}-{version}")


def _download(url, digests, folder):
    # Slow, and not needed to know the names.
    import keras

    # A process that waits finds the folder of the one before.
    with folder_lock(folder.parent, "downloads a preset", wait=True):
        if _is_whole(folder, digests):
            return
        shutil.rmtree(folder, ignore_errors=True)
        # Keras writes a file under its final name, and its progress to the
        # standard output, where answers belong.
        with whole_folder(folder) as partial:
            partial.mkdir()
            for name, digest in digests.items():
                with contextlib.redirect_stdout(sys.stderr):
                    keras.utils.get_file(
                        name,
                        f"{url}/{name}",
                        file_hash=digest,
                        cache_dir=partial,
                        cache_subdir="",
                    )


def _hub_folder(source):
    """A model's folder in the cache of the Hugging Face Hub.

    It is downloaded as by `keras.saving.load_model`, which would read only
    what `model.save` uploads.
    """
    require("huggingface_hub", "hub")
    import huggingface_hub

    with _downloading(
        f"The model {source!r}",
        " from the Hugging Face Hub",
        "The address is hf://user/name. A private model needs `hf auth login`.",
    ):
        folder = huggingface_hub.snapshot_download(source.removeprefix(HUB))
    return pathlib.Path(folder)


@contextlib.contextmanager
def _downloading(what, place, remedy):
    """Raises a `UsageError` for every fault but those of this disk."""
    try:
        yield
    except Exception as error:
        if getattr(error, "errno", None) and disk_fault(error):
            raise
        raise UsageError(
            f"{what} cannot be downloaded{place} ({one_line(error)}). {remedy}",
            field="preset",
        ) from error
