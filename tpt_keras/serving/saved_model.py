"""SavedModels and their answers in this process."""

import json

from tpt_keras.files import reading
from tpt_keras.files import refuse_pattern
from tpt_keras.serving.client import ServedModel
from tpt_keras.serving.versions import ADVICE
from tpt_keras.serving.versions import newest_version
from tpt_keras.serving.versions import quiet
from tpt_keras.typing import StrPath

GRAPH_FILE = "saved_model.pb"
# The model's configuration, which TF Serving ignores.
CONFIG_ASSET = "assets.extra/config.json"


class SavedModel(ServedModel):
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
        import tensorflow as tf

        self.path = newest_version(path, GRAPH_FILE, "SavedModel")
        refuse_pattern(self.path)
        # TensorFlow warns that gradients are not saved.
        with self._reading(), quiet("absl"):
            self.config = json.loads((self.path / CONFIG_ASSET).read_bytes())
            # A signature alone does not keep the variables alive.
            self._loaded = tf.saved_model.load(str(self.path))

    def _reading(self):
        return reading(self.path, ADVICE)

    def _predict(self, signature, inputs):
        import tensorflow as tf

        inputs = {k: tf.constant(v, tf.string) for k, v in inputs.items()}
        found = self._loaded.signatures[signature](**inputs)
        return {name: v.numpy().tolist() for name, v in found.items()}
