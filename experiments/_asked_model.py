"""The model that a command asks: an exported one, or one that was not."""

import dataclasses

from tpt_keras.errors import UsageError


@dataclasses.dataclass(frozen=True)
class AskedModel:
    """Which model a command asks; the fields are flags of it.

    Args:
        saved_model: A SavedModel, or the folder of its versions.
        model_dir: A model's folder, in its place.

    Raises:
        UsageError: If none is named, or both are.
    """

    saved_model: str = ""
    model_dir: str = ""

    def __post_init__(self):
        if bool(self.saved_model) == bool(self.model_dir):
            raise UsageError("One of --saved_model and --model_dir is needed.")

    def load(self):
        """The model, to be asked.

        Returns:
            A `SavedModel` or a `KerasModel`.

        Raises:
            UsageError: If it is not there, or cannot be loaded.
        """
        if self.model_dir:
            from tpt_keras.models.load_model import load_model
            from tpt_keras.serving import KerasModel

            return KerasModel(load_model(self.model_dir))
        from tpt_keras.serving import SavedModel

        return SavedModel(self.saved_model)
