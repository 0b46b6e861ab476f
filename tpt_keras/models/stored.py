"""Trained models by their names: where they are, and their loading."""

import json
import pathlib
import zipfile
from typing import Any

import keras

from tpt_keras.errors import UsageError
from tpt_keras.errors import did_you_mean
from tpt_keras.errors import disk_fault
from tpt_keras.errors import require
from tpt_keras.files import one_line
from tpt_keras.files import reading
from tpt_keras.models.base_model import StringsModel
from tpt_keras.models.presets import FREE_FIELDS
from tpt_keras.models.presets import PRESETS
from tpt_keras.models.presets import TRAINED_PRESETS
from tpt_keras.models.weights import COMPRESSED_FILE
from tpt_keras.models.weights import CompressedModel
from tpt_keras.models.weights import copy_model
from tpt_keras.typing import StrPath

MODEL_FILE = "model.keras"
BEST_MODEL_FILE = "best.keras"
# The address of a model on the Hugging Face Hub is hf://user/name.
HUB = "hf://"
# The folders of trained presets: in a clone, and in the package.
ROOTS = (
    pathlib.Path(__file__).parents[2] / "saved_models",
    pathlib.Path(__file__).parents[1] / "saved_models",
)
# Of a folder that Keras wrote, with `zipped=False` or on the Hugging Face Hub.
_KERAS_CONFIG = "config.json"
_KERAS_FILES = (_KERAS_CONFIG, "model.weights.h5")
_ADVICE = (
    "It is damaged or of another version. If a training wrote it, delete it "
    "and train again, which makes it from the last checkpoint."
)


def resolve(name: StrPath) -> pathlib.Path:
    """Returns the path of a model's folder or file.

    The `name` is the path itself; that of a trained preset, unless there is a
    path of this name; or `hf://user/name`, a model on the Hugging Face Hub,
    which is downloaded into the cache of its client. If there is none, it
    raises a `UsageError`.
    """
    text = str(name)
    if text.startswith(HUB):
        return _download(text)
    folders = [root / text for root in ROOTS if text in TRAINED_PRESETS]
    for path in (pathlib.Path(name), *folders):
        if path.exists():
            return path
    if folders:
        problem = f"it is in none of {', '.join(map(str, folders))}."
    elif text in PRESETS:
        problem = "this preset has no trained weights."
    else:
        hint = did_you_mean(text, PRESETS)
        problem = f"no such folder, file or preset.{hint}"
    raise UsageError(
        f"There is no trained model {text!r}: {problem} Name a folder or "
        "file, a model on the Hugging Face Hub (hf://user/name), or a trained "
        f"preset ({', '.join(TRAINED_PRESETS)}).",
        field="model",
        path=name,
    )


def _download(address):
    # As `keras.saving.load_model`, which reads only what `model.save` uploads.
    require("huggingface_hub", "hub")
    import huggingface_hub

    try:
        folder = huggingface_hub.snapshot_download(address.removeprefix(HUB))
    except Exception as error:
        if getattr(error, "errno", None) and disk_fault(error):
            raise
        raise UsageError(
            f"The model {address!r} cannot be downloaded from the Hugging Face "
            f"Hub ({one_line(error)}). A private model needs `hf auth login`.",
            field="model",
        ) from error
    return pathlib.Path(folder)


def model_file(model: StrPath, best: bool = False) -> pathlib.Path:
    """Returns the file of a model, or its folder if Keras wrote it whole."""
    folder = resolve(model)
    if folder.is_file():
        return folder
    path = folder / (BEST_MODEL_FILE if best else MODEL_FILE)
    if path.is_file():
        return path
    if not best and (folder / COMPRESSED_FILE).is_file():
        return folder / COMPRESSED_FILE
    if not best and all((folder / name).is_file() for name in _KERAS_FILES):
        return folder
    raise UsageError(
        f"The folder {str(folder)!r} has no {path.name}. Finish its training, "
        "or name another folder or a model's file. An exported model answers "
        "with tpt_keras.serving.SavedModel.",
        path=path,
    )


def load_model(
    model: StrPath,
    best: bool = False,
    classes: tuple[type, ...] = (StringsModel,),
) -> Any:
    """Loads a trained model from its folder.

    Args:
        model: Folder of a finished training, of a converted checkpoint, or of
            a compressed model; a file or folder that `model.save` wrote; the
            name of a trained preset; or `hf://user/name`, a model on the
            Hugging Face Hub.
        best: Whether to load the model that was best in validation.
        classes: Classes of models that are accepted.

    Returns:
        A model, such as a `Transformer`. It is not compiled: call `compile`
        before `fit`.

    Raises:
        UsageError: If there is no such model, or its file is damaged.

    Example:

    ```python
    model = tpt_keras.load_model("models/place_value")
    model.solve(["What is the tens digit of 31859?"])
    ```
    """
    path = model_file(model, best)
    known: dict[str, Any] = {}
    queue = list(classes)
    for each in queue:
        known[each.__name__] = each
        queue += each.__subclasses__()
    if path.name == COMPRESSED_FILE:
        compressed = CompressedModel.read(path)
        for model_class in known.values():
            if model_class.takes(compressed.config):
                loaded = model_class(compressed.config)
                compressed.assign_to(loaded)
                return loaded
        raise _other_model(path, type(compressed.config).__name__)
    file = path / _KERAS_CONFIG if path.is_dir() else path
    file.open("rb").close()  # a file without permission is not damaged
    with reading(path, _ADVICE):
        name = _check_file(path)
    if name not in known:
        raise _other_model(path, name)
    with reading(path, _ADVICE):
        return keras.saving.load_model(
            path, custom_objects=known, compile=False
        )


def load_changed(model_class, source, dtype, overrides):
    """Loads a model with another class, dtype or fields; see `from_preset`."""
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


def _other_model(path, name):
    return UsageError(
        f"The file {str(path)!r} holds a {name}, and another model is needed. "
        "A TransformerXL continues texts (continue_text, "
        "load_language_model), other models answer questions (solve, "
        "load_model). keras.saving.load_model loads a model of your own.",
        path=path,
    )


def _check_file(path):
    """Checks a file or folder, and returns its model's class name."""
    if path.is_dir():
        return json.loads((path / _KERAS_CONFIG).read_text())["class_name"]
    with zipfile.ZipFile(path) as archive:
        # Keras falls back to a way of reading that skips the checksums.
        damaged = archive.testzip()
        if damaged:
            raise zipfile.BadZipFile(f"bad checksum of {damaged}")
        return json.loads(archive.read(_KERAS_CONFIG))["class_name"]
