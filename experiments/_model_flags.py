"""Flags that name the model to ask: trained, exported or served."""

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
        server: In its place, a TF Serving: host and port of gRPC, or a URL of
            REST.
        model_name: The model's name on the server.
    """

    saved_model: str = ""
    model_dir: str = ""
    preset: str = ""
    server: str = ""
    model_name: str = "solver"

    def __post_init__(self):
        named = [self.saved_model, self.model_dir, self.preset, self.server]
        if sum(map(bool, named)) != 1:
            raise UsageError(
                "One of --saved_model, --model_dir, --preset and --server is "
                "needed."
            )

    def load(self):
        """Loads the model.

        Returns:
            An object with `answer`; and a dict of the model's configuration,
            empty if it is unknown.
        """
        if self.server:
            from tpt_keras import serving

            is_url = "://" in self.server
            client = serving.RestClient if is_url else serving.GrpcClient
            return client(self.server, self.model_name), {}
        if self.saved_model:
            _cli.import_tensorflow()
            from tpt_keras.serving import SavedModel

            saved_model = SavedModel(self.saved_model)
            return saved_model, saved_model.config
        from tpt_keras.decoding import Generator
        from tpt_keras.models import SequenceToSequence
        from tpt_keras.models.load_model import load_model

        model = (
            load_model(self.model_dir)
            if self.model_dir
            else SequenceToSequence.from_preset(self.preset, load_weights=True)
        )
        return Generator(model), dataclasses.asdict(model.config)
