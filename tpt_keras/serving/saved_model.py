import json

import tensorflow as tf

from tpt_keras.answer import Answer
from tpt_keras.answer import answer_in_batches
from tpt_keras.errors import UsageError
from tpt_keras.files import refuse_pattern
from tpt_keras.serving.exported_files import CONFIG_ASSET
from tpt_keras.serving.exported_files import find_saved_model
from tpt_keras.serving.exported_files import verify_checksums

_BATCH_SIZE = 64


class SavedModel:
    """An exported model in this process.

    Needs TensorFlow and no Keras model.

    Args:
        path: A SavedModel, or the folder of its versions.

    Attributes:
        path: The SavedModel.
        config: Dict of the model's hyperparameters, empty if they are missing.

    Raises:
        UsageError: If there is no SavedModel, or it cannot be loaded.

    Example:

    ```python
    model = SavedModel("saved_models/demo")
    [answer] = model.answer(["What is the tens digit of 31859?"])
    ```
    """

    def __init__(self, path):
        self.path = find_saved_model(path)
        refuse_pattern(self.path)
        verify_checksums(self.path)
        try:
            # A signature alone does not keep the variables alive.
            self._loaded = tf.saved_model.load(str(self.path))
            self._answer = self._loaded.signatures["serving_default"]
        # TensorFlow raises many kinds of exceptions for a damaged graph.
        except Exception as error:
            raise self._error("cannot be loaded", error) from error
        self.config = _read_config(self.path / CONFIG_ASSET)

    def answer(self, questions):
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
            outputs = self._answer(questions=tf.constant(questions, tf.string))
            columns = [
                outputs[name].numpy().tolist()
                for name in ("answers", "log_probs", "status")
            ]
            return [
                Answer(text.decode(), log_prob, status.decode())
                for _, text, log_prob, status in zip(
                    questions, *columns, strict=True
                )
            ]
        # So it does for the model of another program.
        except Exception as error:
            raise self._error("answers no questions", error) from error

    def _error(self, problem, error):
        reason = " ".join(str(error).split())[:200]
        return UsageError(
            f"The SavedModel {str(self.path)!r} {problem}: it is damaged, or "
            "of another program. Copy it again, or export it again. "
            f"({type(error).__name__}: {reason})",
            path=self.path,
            remedy=("export", {}),
        )


def _read_config(path):
    try:
        config = json.loads(path.read_bytes())
    except (OSError, RecursionError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}
