import json

import tensorflow as tf

from tpt_keras.errors import UsageError
from tpt_keras.errors import command
from tpt_keras.files import plain_path
from tpt_keras.serving.checksums import check_checksums
from tpt_keras.serving.clients.answer import Answer
from tpt_keras.serving.clients.answer import finite_or_none
from tpt_keras.serving.clients.answerer import Answerer
from tpt_keras.serving.versions import CONFIG_ASSET
from tpt_keras.serving.versions import find_saved_model


class SavedModel(Answerer):
    """An exported model, asked in this process.

    Needs TensorFlow, and no model code of this project.

    Args:
        path: A SavedModel, or the folder of its versions.

    Attributes:
        path: The SavedModel.
        config: Dict of the model's hyperparameters; empty if it came without.

    Raises:
        UsageError: If there is none, or it cannot be loaded.

    Example:

    ```python
    model = SavedModel("saved_models/demo")
    [answer] = model.answer(["What is the tens digit of 31859?"])
    ```
    """

    def __init__(self, path):
        self.path = find_saved_model(path)
        check_checksums(self.path)
        try:
            # Kept, for a signature does not keep the variables alive.
            self._loaded = tf.saved_model.load(str(plain_path(self.path)))
            self._answer = self._loaded.signatures["serving_default"]
        # There is no end to what a damaged graph makes TensorFlow raise.
        except Exception as error:
            raise self._error("cannot be loaded", error) from error
        self.config = _read_config(self.path / CONFIG_ASSET)

    def _answer_batch(self, questions):
        try:
            outputs = self._answer(questions=tf.constant(questions, tf.string))
            columns = [
                outputs[name].numpy().tolist()
                for name in ("answers", "log_probs", "status")
            ]
            if len(columns[0]) != len(questions):
                raise ValueError(
                    f"{len(columns[0])} of {len(questions)} answers"
                )
            return [
                Answer(answer.decode(), finite_or_none(x), status.decode())
                for answer, x, status in zip(*columns, strict=True)
            ]
        except Exception as error:
            raise self._error("answers no questions", error) from error

    def _error(self, problem, error):
        reason = " ".join(str(error).split())[:200]
        return UsageError(
            f"The SavedModel {str(self.path)!r} {problem}: it is damaged, or "
            "another program's. Copy it again, or export it anew with "
            f"{command('export')}. ({type(error).__name__}: {reason})"
        )


def _read_config(path):
    try:
        config = json.loads(path.read_bytes())
    except (OSError, RecursionError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}
