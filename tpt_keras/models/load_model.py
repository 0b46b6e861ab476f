"""Loads trained models from folders and files."""

import json
import pathlib
import zipfile

import keras

from tpt_keras.errors import UsageError
from tpt_keras.files import reading
from tpt_keras.models.presets import FREE_FIELDS
from tpt_keras.models.sequence_to_sequence import SequenceToSequence
from tpt_keras.models.sequence_to_sequence import build_model
from tpt_keras.models.weights import COMPRESSED_FILE
from tpt_keras.models.weights import CompressedModel
from tpt_keras.models.weights import copy_model
from tpt_keras.pretrained import find_model
from tpt_keras.typing import StrPath

MODEL_FILE = "model.keras"
BEST_MODEL_FILE = "best.keras"
# Of a folder that Keras wrote, with `zipped=False` or on the Hugging Face Hub.
_KERAS_CONFIG = "config.json"
_KERAS_FILES = (_KERAS_CONFIG, "model.weights.h5")
_REMEDY: tuple[str, dict] = ("train", {})
_ADVICE = (
    "It is damaged or of another version. If a training wrote it, delete it "
    "and train with the same configuration, which makes it from the last "
    "checkpoint."
)


def load_model(
    model_dir: StrPath,
    best: bool = False,
    classes: tuple[type, ...] = (SequenceToSequence,),
) -> SequenceToSequence:
    """Loads a trained model from its folder.

    Args:
        model_dir: Folder of a finished training, of a converted checkpoint, or
            of a compressed model; a file or folder that `model.save` wrote;
            the name of a trained preset; or `hf://user/name`, a model on the
            Hugging Face Hub.
        best: Whether to load the model that was best in validation in place of
            the last one.
        classes: Classes of models that are accepted.

    Returns:
        A model, such as a `Transformer`. It is not compiled: call `compile`
        before `fit`.

    Raises:
        UsageError: If there is no such model.
        UnreadableFileError: If its file is damaged.

    Example:

    ```python
    model = tpt_keras.load_model("models/place_value")
    model.solve(["What is the tens digit of 31859?"])
    ```
    """
    path = model_path(model_dir, best)
    if path.name == COMPRESSED_FILE:
        return _load_compressed(path, classes)
    file = path / _KERAS_CONFIG if path.is_dir() else path
    file.open("rb").close()  # a file without permission is not damaged
    with reading(path, _ADVICE, _REMEDY):
        name = _check_file(path)
    known = dict(_with_subclasses(classes))
    if name not in known:
        raise _other_model(path, name, classes)
    with reading(path, _ADVICE, _REMEDY):
        return keras.saving.load_model(
            path, custom_objects=known, compile=False
        )


def load_preset(model_class, source, dtype, overrides):
    """Loads a trained model as `SequenceToSequence.from_preset` returns it.

    Args:
        model_class: The class whose `from_preset` was called.
        source: The model, as `load_model` takes it.
        dtype: Dtype policy, or `None` for that of the loaded model.
        overrides: Dict of the fields of the configuration to change.

    Raises:
        UsageError: If a weight depends on a changed field.
    """
    model = load_model(source)
    config = model.config.replace(**overrides)
    for field in sorted(overrides.keys() - set(FREE_FIELDS)):
        if getattr(config, field) != getattr(model.config, field):
            raise UsageError(
                f"The weights of {str(source)!r} were trained with another "
                f"`{field}`. Only {', '.join(FREE_FIELDS)} may change. For a "
                "new model of other sizes, pass load_weights=False.",
                field=field,
            )
    if isinstance(model, model_class):
        model_class = type(model)
    else:
        model_class = model_class.class_for(config)
    if dtype is None and (type(model), model.config) == (model_class, config):
        return model
    return copy_model(model, dtype or model.dtype_policy, config, model_class)


def model_path(model_dir: StrPath, best: bool = False) -> pathlib.Path:
    """Returns the file of a model, or its folder if Keras wrote it whole.

    For the arguments and the errors see `load_model`.
    """
    folder = find_model(model_dir)
    if folder.is_file():
        return folder
    path = folder / (BEST_MODEL_FILE if best else MODEL_FILE)
    if not best and not path.exists():
        if (folder / COMPRESSED_FILE).is_file():
            return folder / COMPRESSED_FILE
        if all((folder / name).is_file() for name in _KERAS_FILES):
            return folder
    if not path.is_file():
        raise _missing(path)
    return path


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
            f"There is no model {str(folder)!r}: no such folder or file.",
            path=folder,
        )
    kind = "best" if path.name == BEST_MODEL_FILE else "finished"
    return UsageError(
        f"The folder {str(folder)!r} holds no {kind} model ({path.name}). "
        "Finish its training, or name another folder or a model's file. An "
        "exported model answers with tpt_keras.serving.SavedModel.",
        path=path,
        remedy=_REMEDY,
    )


def _with_subclasses(classes):
    for each in classes:
        yield each.__name__, each
        yield from _with_subclasses(each.__subclasses__())


def _check_file(path):
    """Checks a file or folder and returns the name of its model's class."""
    if path.is_dir():
        return json.loads((path / _KERAS_CONFIG).read_text())["class_name"]
    with zipfile.ZipFile(path) as archive:
        # Keras falls back to a way of reading that skips the checksums.
        damaged = archive.testzip()
        if damaged:
            raise zipfile.BadZipFile(f"bad checksum of {damaged}")
        return json.loads(archive.read(_KERAS_CONFIG))["class_name"]
