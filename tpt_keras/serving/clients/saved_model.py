import json

import tensorflow as tf

from tpt_keras.errors import UsageError
from tpt_keras.errors import command
from tpt_keras.files import plain_path
from tpt_keras.serving.checksums import check_checksums
from tpt_keras.serving.clients.answer import Answer
from tpt_keras.serving.clients.answer import finite_or_none
from tpt_keras.serving.clients.question_batches import question_batches
from tpt_keras.serving.versions import CONFIG_ASSET
from tpt_keras.serving.versions import find_saved_model

# A decoding step costs little more for these than for one question.
_BATCH_SIZE = 64


class SavedModel:
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

    def answer(self, questions):
        """Answers questions.

        A question that cannot be answered gets its status and fails no other.

        Args:
            questions: List of strings, or of bytes of any kind.

        Returns:
            List of as many `Answer`s.

        Raises:
            UsageError: If the model answers no questions, or is damaged.
        """
        answers = []
        for batch in question_batches(questions, _BATCH_SIZE):
            try:
                outputs = self._answer(questions=tf.constant(batch, tf.string))
                columns = [
                    outputs[name].numpy().tolist()
                    for name in ("answers", "log_probs", "status")
                ]
                answers += [
                    Answer(answer.decode(), finite_or_none(x), status.decode())
                    for answer, x, status in zip(*columns, strict=True)
                ]
            except Exception as error:
                raise self._error("answers no questions", error) from error
        return answers

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
