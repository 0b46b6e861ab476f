"""SavedModels and their answers in this process."""

import json
import pathlib
from collections.abc import Sequence

import tensorflow as tf

from tpt_keras.answer import Answer
from tpt_keras.files import refuse_pattern
from tpt_keras.serving.client import answer_in_batches
from tpt_keras.serving.client import answers_of
from tpt_keras.serving.versions import damaged
from tpt_keras.serving.versions import newest_version
from tpt_keras.typing import StrPath

GRAPH_FILE = "saved_model.pb"
# The model's configuration, which TF Serving ignores.
CONFIG_ASSET = "assets.extra/tpt_keras.json"
_BATCH_SIZE = 64


class SavedModel:
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
        self.path = find_saved_model(path)
        refuse_pattern(self.path)
        try:
            self.config = json.loads((self.path / CONFIG_ASSET).read_bytes())
            # A signature alone does not keep the variables alive.
            self._loaded = tf.saved_model.load(str(self.path))
            self._signature = self._loaded.signatures["serving_default"]
        # TensorFlow raises many kinds of exceptions for a damaged graph.
        except Exception as error:
            raise self._error("cannot be loaded", error) from error

    def answer(self, questions: Sequence[str | bytes]) -> list[Answer]:
        """Answers questions.

        Args:
            questions: List of strings or of bytes.

        Returns:
            List of `Answer`s. A question that has none has a status that says
            why.

        Raises:
            UsageError: If the model answers no questions.
        """
        return answer_in_batches(self._answer_batch, questions, _BATCH_SIZE)

    def _answer_batch(self, questions):
        try:
            found = self._signature(questions=tf.constant(questions, tf.string))
            outputs = {name: v.numpy().tolist() for name, v in found.items()}
            return answers_of(outputs, len(questions))
        # The model of another program may return anything.
        except Exception as error:
            raise self._error("answers no questions", error) from error

    def _error(self, problem, error):
        return damaged("SavedModel", self.path, problem, error)


def find_saved_model(path: StrPath) -> pathlib.Path:
    """Returns the path of the SavedModel at a path or of its newest version.

    Args:
        path: A SavedModel, or the folder of its versions.

    Raises:
        UsageError: If there is none.
    """
    return newest_version(path, GRAPH_FILE, "SavedModel")
