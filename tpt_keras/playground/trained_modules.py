import pathlib

from tpt_keras.data_generators.mathematics_modules import MODULES
from tpt_keras.training.model_folder import CONFIG_FILE
from tpt_keras.training.model_folder import read_config


def trained_modules(model_dir):
    """The modules that a model was trained on, as far as its folder says.

    Args:
        model_dir: The model's folder.

    Returns:
        Tuple of names; empty for a converted checkpoint, whose folder does
        not tell, and for a model that was saved without a configuration.

    Raises:
        UsageError: If the folder's configuration is damaged.
    """
    if not (pathlib.Path(model_dir) / CONFIG_FILE).exists():
        return ()
    training = read_config(model_dir).get("training", {})
    return tuple(
        module for module in training.get("modules", ()) if module in MODULES
    )
