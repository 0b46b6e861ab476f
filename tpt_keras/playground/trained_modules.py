from tpt_keras.data_generators.mathematics_modules import MODULES
from tpt_keras.training.model_folder import read_training


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
    modules = read_training(model_dir).get("modules", ())
    return tuple(module for module in modules if module in MODULES)
