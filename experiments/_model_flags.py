"""Flags that name the model to ask: exported or not."""

import dataclasses

from tpt_keras.errors import UsageError

from . import _cli


@dataclasses.dataclass(frozen=True)
class ModelFlags:
    """The model that a command asks; the fields are flags.

    Args:
        saved_model: A SavedModel, or the folder of its versions.
        model_dir: In its place, the folder of a trained model.
        preset: In its place, the name of a trained preset.

    Raises:
        UsageError: If none is named, or more than one.
    """

    saved_model: str = ""
    model_dir: str = ""
    preset: str = ""

    def __post_init__(self):
        named = [self.saved_model, self.model_dir, self.preset]
        if sum(map(bool, named)) != 1:
            raise UsageError(
                "One of --saved_model, --model_dir and --preset is needed."
            )

    def load(self):
        """Loads the model.

        Returns:
            An object with `answer`, a `SavedModel` or a `Generator`; and a
            dict of the model's configuration, empty if it is unknown.

        Raises:
            UsageError: If there is no such model, or it cannot be loaded.
        """
        if self.saved_model:
            _cli.import_tensorflow()
            from tpt_keras.serving import SavedModel

            saved_model = SavedModel(self.saved_model)
            return saved_model, saved_model.config
        from tpt_keras.decoding import Generator

        model = self._load_model()
        return Generator(model), dataclasses.asdict(model.config)

    def _load_model(self):
        if self.model_dir:
            from tpt_keras.models.load_model import load_model

            return load_model(self.model_dir)
        from tpt_keras.models import SequenceToSequence

        return SequenceToSequence.from_preset(self.preset, load_weights=True)
