"""SavedModels and their answers in this process."""

import json

import tensorflow as tf

from tpt_keras.answer import AnsweringModel
from tpt_keras.answer import to_bytes
from tpt_keras.files import refuse_pattern
from tpt_keras.serving.client import answers_of
from tpt_keras.serving.versions import damaged
from tpt_keras.serving.versions import newest_version
from tpt_keras.typing import StrPath

GRAPH_FILE = "saved_model.pb"
# The model's configuration, which TF Serving ignores.
CONFIG_ASSET = "assets.extra/tpt_keras.json"


class SavedModel(AnsweringModel):
    """An exported model in this process.

    Needs TensorFlow and no Keras model.

    Args:
        path: A SavedModel, or the folder of its versions.

    Attributes:
        path: The SavedModel.
        config: Dict of the model's hyperparameters.

    Raises:
        UsageError: If there is no SavedModel, or it cannot be loaded.

    Example:

    ```python
    model = SavedModel("saved_models/demo")
    [answer] = model.answer(["What is the tens digit of 31859?"])
    ```
    """

    def __init__(self, path: StrPath) -> None:
        self.path = newest_version(path, GRAPH_FILE, "SavedModel")
        refuse_pattern(self.path)
        try:
            self.config = json.loads((self.path / CONFIG_ASSET).read_bytes())
            # A signature alone does not keep the variables alive.
            self._loaded = tf.saved_model.load(str(self.path))
            self._signature = self._loaded.signatures["serving_default"]
        # TensorFlow raises many kinds of exceptions for a damaged graph.
        except Exception as error:
            raise damaged(
                "SavedModel", self.path, "cannot be loaded", error
            ) from error

    def _answer_batch(self, questions):
        try:
            encoded = tf.constant(to_bytes(questions), tf.string)
            found = self._signature(questions=encoded)
            outputs = {name: v.numpy().tolist() for name, v in found.items()}
            return answers_of(outputs, len(questions))
        # The model of another program may return anything.
        except Exception as error:
            raise damaged(
                "SavedModel", self.path, "answers no questions", error
            ) from error
