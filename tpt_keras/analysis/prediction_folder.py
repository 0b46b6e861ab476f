import dataclasses
import hashlib
import json
import pathlib
import shutil

import keras

from tpt_keras.analysis.predictions import Prediction
from tpt_keras.files import whole_file
from tpt_keras.models.stored_config import to_stored

_IDENTITY_FILE = "model.json"


class PredictionFolder:
    """Predictions of a model in files, a line of JSON each.

    They are those of one model, which `model.json` tells: those of another one
    that was there before are removed when the first are written.

    Args:
        path: The folder, there or not.
        identity: Dict of what tells the model, with its `fingerprint`.
    """

    def __init__(self, path, identity):
        self._path = pathlib.Path(path)
        self._identity = identity

    def read(self, split, module):
        """The predictions of a module's problems, or none.

        Args:
            split: Name of the split.
            module: Name of the module.

        Returns:
            List of `Prediction`s. What is damaged is passed over.
        """
        path = self._file(split, module)
        if not (path.is_file() and self._is_of_this_model()):
            return []
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            return [Prediction(**json.loads(line)) for line in lines]
        except (ValueError, TypeError, RecursionError):
            return []

    def write(self, split, module, predictions):
        """Keeps the predictions of a module's problems, in place of others.

        Where they are all there, among more of a larger sample, these stay.

        Args:
            split: Name of the split.
            module: Name of the module.
            predictions: List of `Prediction`s.
        """
        if set(predictions) <= set(self.read(split, module)):
            return
        if not self._is_of_this_model():
            shutil.rmtree(self._path, ignore_errors=True)
            self._path.mkdir(parents=True)
            with whole_file(self._path / _IDENTITY_FILE) as partial:
                partial.write_text(json.dumps(self._identity, indent=2))
        path = self._file(split, module)
        path.parent.mkdir(exist_ok=True)
        lines = [
            json.dumps(dataclasses.asdict(each), ensure_ascii=False) + "\n"
            for each in predictions
        ]
        with whole_file(path) as partial:
            partial.write_text("".join(lines), encoding="utf-8")

    def _file(self, split, module):
        return self._path / split / f"{module}.jsonl"

    def _is_of_this_model(self):
        path = self._path / _IDENTITY_FILE
        if not path.is_file():
            return False
        try:
            found = json.loads(path.read_text())
            return found["fingerprint"] == self._identity["fingerprint"]
        except (ValueError, TypeError, LookupError, RecursionError):
            return False


def model_fingerprint(model):
    """What tells whether a model answers the same.

    Args:
        model: A `SequenceToSequence`.

    Returns:
        16 hexadecimal digits, of its weights, its configuration and its dtype.
    """
    described = to_stored(model.config), model.dtype_policy.name
    digest = hashlib.sha256(json.dumps(described).encode())
    for weight in model.weights:
        values = keras.ops.convert_to_numpy(weight)
        digest.update(values.tobytes())
    return digest.hexdigest()[:16]
