r"""Compresses a trained model to a quarter.

Its weights become int8 with a scale for each output column.

    tpt_keras compress --model=models/all_modules \
        --compressed_dir=saved_models/tp_transformer_mathematics

Every command with --model takes the new folder.
"""

import pathlib

from absl import flags

from tpt_keras.errors import UsageError

from . import _flags

FLAGS = flags.FLAGS

_flags.define_model(with_best=True)
flags.DEFINE_string("compressed_dir", None, "Folder to write.", required=True)


def main():
    from tpt_keras.models.stored import MODEL_FILE
    from tpt_keras.models.stored import load_model
    from tpt_keras.models.stored import resolve
    from tpt_keras.models.weights import COMPRESSED_FILE
    from tpt_keras.models.weights import CompressedModel
    from tpt_keras.training.state.model_folder import CONFIG_FILE
    from tpt_keras.training.state.model_folder import read_config
    from tpt_keras.training.state.model_folder import saved_step
    from tpt_keras.training.state.model_folder import write_config

    folder = pathlib.Path(FLAGS.compressed_dir)
    if (folder / MODEL_FILE).exists():
        raise UsageError(
            f"The folder {str(folder)!r} has a {MODEL_FILE}, which would be "
            "loaded instead of the compressed model. Name another folder.",
            path=folder,
        )
    model = load_model(FLAGS.model, FLAGS.best)
    compressed = CompressedModel.of(model)
    folder.mkdir(parents=True, exist_ok=True)
    if (resolve(FLAGS.model) / CONFIG_FILE).is_file():
        step = saved_step(FLAGS.model, FLAGS.best)
        config = {**read_config(FLAGS.model), "step": step}
        write_config(folder, config)
    compressed.write(folder / COMPRESSED_FILE)
    num_bytes = (folder / COMPRESSED_FILE).stat().st_size
    print(f"{folder}: {model.count_params():,} weights in {num_bytes:,} bytes")
