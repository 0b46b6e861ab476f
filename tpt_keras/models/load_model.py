import json
import lzma
import pathlib
import struct
import zipfile
import zlib

import keras

from tpt_keras.errors import UsageError
from tpt_keras.models.build_model import MODELS
from tpt_keras.models.compressed_model import COMPRESSED_FILE
from tpt_keras.models.compressed_model import CompressedModel

MODEL_FILE = "model.keras"
BEST_MODEL_FILE = "best.keras"

# What Keras raises of a damaged archive, depending on where the damage is, and
# of one whose content is another version's.
_DAMAGE = (
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)

# Ways to use the models that answer no questions, by their classes.
_OTHERS = {
    "TransformerXL": "It is a language model, which continues a text: load it "
    "with tpt_keras.language_model.load_language_model, or use the command "
    "continue_text."
}
_ANY_OTHER = "Load it with keras.saving.load_model."


def load_model(model_dir, best=False, classes=MODELS):
    """A trained model from its folder, vocabulary included.

    A compressed model (`CompressedModel`) is taken where no other is there.

    Args:
        model_dir: Folder that training, or the conversion of a checkpoint,
            left a finished model in.
        best: Whether to load the model that was best in validation, finished
            or not, in place of the last one.
        classes: Classes of models that are accepted. Defaults to every
            `SequenceToSequence`.

    Returns:
        A model, such as a `Transformer`.

    Raises:
        UsageError: If there is no such model in the folder, or a damaged one.

    Example:

    ```python
    model = tpt_keras.load_model("models/place_value")
    model.solve(["What is the tens digit of 31859?"])
    ```
    """
    path = pathlib.Path(model_dir) / (BEST_MODEL_FILE if best else MODEL_FILE)
    if not path.parent.is_dir():
        raise UsageError(f"There is no model folder {str(model_dir)!r}.")
    compressed_path = path.with_name(COMPRESSED_FILE)
    if not best and not path.exists() and compressed_path.is_file():
        return _uncompressed(compressed_path, classes)
    if not path.is_file():
        raise UsageError(
            f"The folder {str(model_dir)!r} holds no "
            f"{'best' if best else 'finished'} model ({path.name}). Finish its "
            "training, or name another folder.",
            path=model_dir,
            remedy=("train", {}),
        )
    path.open("rb").close()  # a file that may not be read is not damaged
    try:
        _check_whole(path)
        _check_class(path, classes)
        model = keras.models.load_model(
            path,
            custom_objects={each.__name__: each for each in classes},
            compile=False,
        )
    except UsageError:
        raise
    except _DAMAGE as error:
        raise UsageError(
            f"The model {str(path)!r} is damaged, or of another version "
            f"({_reason(error)}). {_way_out(path)}",
            path=path,
            remedy=("train", {}),
        ) from error
    return model


def _uncompressed(path, classes):
    """The model of a compressed one, if it is of one of the classes."""
    compressed = CompressedModel.read(path)
    config = compressed.config
    for each in MODELS:
        if each.takes(config) and issubclass(each, classes):
            model = each(config)
            compressed.assign_to(model)
            return model
    raise UsageError(
        f"The file {str(path)!r} holds a model of another kind "
        f"({config.KIND}), and none of {_names(classes)}. Name another folder."
    )


def _names(classes):
    return ", ".join(each.__name__ for each in classes)


def _check_whole(path):
    """Raises a `BadZipFile` if a file is not as it was written.

    Keras falls back to a way of reading that looks at no checksum.
    """
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged:
        raise zipfile.BadZipFile(f"bad checksum of {damaged}")


def _check_class(path, classes):
    """Raises a `UsageError` if a file holds a model of another class."""
    with zipfile.ZipFile(path) as archive:
        name = json.loads(archive.read("config.json"))["class_name"]
    if name not in [each.__name__ for each in classes]:
        raise UsageError(
            f"The file {str(path)!r} holds a {name}, and none of "
            f"{_names(classes)}. {_OTHERS.get(name, _ANY_OTHER)}"
        )


def _reason(error):
    # Keras puts what it met behind its own opinion of it.
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[-1]


def _way_out(path):
    if path.name == BEST_MODEL_FILE:
        return "Take the last model in its place, without `best`."
    again = (
        "If it was trained here, the same training makes it again from the "
        "last checkpoint"
    )
    if path.with_name(BEST_MODEL_FILE).is_file():
        return f"{again}; or take the best model (`best`)."
    return f"{again}."
