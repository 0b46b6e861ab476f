import json
import zipfile

import keras

from tpt_keras.errors import UsageError
from tpt_keras.files import reading
from tpt_keras.models.presets import model_folder
from tpt_keras.models.sequence_to_sequence import SequenceToSequence
from tpt_keras.models.sequence_to_sequence import build_model
from tpt_keras.models.weights import COMPRESSED_FILE
from tpt_keras.models.weights import CompressedModel

MODEL_FILE = "model.keras"
BEST_MODEL_FILE = "best.keras"
_REMEDY = ("train", {})
_ADVICE = (
    "It is damaged or of another version. Delete it and train with the same "
    "configuration, which makes it from the last checkpoint. There may be "
    "another model in the folder, the best or the last one (`best`)."
)


def load_model(model_dir, best=False, classes=(SequenceToSequence,)):
    """Loads a trained model from its folder.

    Args:
        model_dir: Folder of a finished training, of a converted checkpoint, or
            of a compressed model; the name of a trained preset; or a file that
            `model.save` wrote.
        best: Whether to load the model that was best in validation in place of
            the last one.
        classes: Classes of models that are accepted.

    Returns:
        A model, such as a `Transformer`, not compiled.

    Raises:
        UsageError: If there is no such model in the folder.
        UnreadableFileError: If its file is damaged.

    Example:

    ```python
    model = tpt_keras.load_model("models/place_value")
    model.solve(["What is the tens digit of 31859?"])
    ```
    """
    folder = model_folder(model_dir)
    path = folder / (BEST_MODEL_FILE if best else MODEL_FILE)
    if folder.is_file():
        path = folder
    compressed_path = folder / COMPRESSED_FILE
    if not best and not path.exists() and compressed_path.is_file():
        return _load_compressed(compressed_path, classes)
    if not path.is_file():
        raise _missing(path)
    path.open("rb").close()  # a file without permission is not damaged
    with reading(path, _ADVICE, _REMEDY):
        name = _check_file(path)
    known = dict(_with_subclasses(classes))
    if name not in known:
        raise _other_model(path, name, classes)
    with reading(path, _ADVICE, _REMEDY):
        return keras.saving.load_model(
            path, custom_objects=known, compile=False
        )


def _load_compressed(path, classes):
    compressed = CompressedModel.read(path)
    model = build_model(compressed.config)
    if not isinstance(model, classes):
        raise _other_model(path, type(model).__name__, classes)
    compressed.assign_to(model)
    return model


def _other_model(path, name, classes):
    expected = " or ".join(each.__name__ for each in classes)
    return UsageError(
        f"The file {str(path)!r} holds a {name}, not a {expected}. A "
        "TransformerXL continues texts (continue_text, load_language_model), "
        "other models answer questions (solve, load_model).",
        path=path,
    )


def _missing(path):
    folder = path.parent
    if not folder.is_dir():
        return UsageError(
            f"There is no model folder {str(folder)!r}.",
            path=folder,
        )
    kind = "best" if path.name == BEST_MODEL_FILE else "finished"
    return UsageError(
        f"The folder {str(folder)!r} holds no {kind} model ({path.name}). "
        "Finish its training, choose the other one, the best or the last "
        "(`best`), or another folder. An exported model answers with "
        "tpt_keras.serving.SavedModel (`saved_model`).",
        path=path,
        remedy=_REMEDY,
    )


def _with_subclasses(classes):
    for each in classes:
        yield each.__name__, each
        yield from _with_subclasses(each.__subclasses__())


def _check_file(path):
    """Checks a file and returns the name of its model's class."""
    with zipfile.ZipFile(path) as archive:
        # Keras falls back to a way of reading that skips the checksums.
        damaged = archive.testzip()
        if damaged:
            raise zipfile.BadZipFile(f"bad checksum of {damaged}")
        return json.loads(archive.read("config.json"))["class_name"]
