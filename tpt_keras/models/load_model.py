import pathlib

import keras

from tpt_keras.errors import UsageError
from tpt_keras.models.transformer import Transformer

MODEL_FILE = "model.keras"
BEST_MODEL_FILE = "best.keras"


def load_model(model_dir, best=False):
    """A trained model from its folder, vocabulary included.

    Args:
        model_dir: Folder that training, or the conversion of a checkpoint,
            left a finished model in.
        best: Whether to load the model that was best in validation, finished
            or not, in place of the last one.

    Returns:
        A `Transformer`.

    Raises:
        UsageError: If there is no such model in the folder.

    Example:

    ```python
    model = tpt_keras.load_model("models/place_value")
    model.solve(["What is the tens digit of 31859?"])
    ```
    """
    path = pathlib.Path(model_dir) / (BEST_MODEL_FILE if best else MODEL_FILE)
    if not path.parent.is_dir():
        raise UsageError(f"There is no model folder {str(model_dir)!r}.")
    if not path.is_file():
        raise UsageError(
            f"The folder {str(model_dir)!r} holds no "
            f"{'best' if best else 'finished'} model ({path.name}). Finish its "
            "training with python -m experiments.train, or name another folder."
        )
    return keras.models.load_model(
        path, custom_objects={"Transformer": Transformer}, compile=False
    )
