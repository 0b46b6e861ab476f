import contextlib
import json
import pathlib

import keras
import tensorflow as tf

from tpt_keras.decoding import Generator
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names
from tpt_keras.errors import check_positive_integer
from tpt_keras.errors import disk_fault
from tpt_keras.files import folder_lock
from tpt_keras.files import whole_folder
from tpt_keras.models.same_model import same_model
from tpt_keras.models.stored_config import to_stored
from tpt_keras.serving.checksums import write_checksums
from tpt_keras.serving.export.check_graph import check_graph
from tpt_keras.serving.export.int8_weights import Int8Weights
from tpt_keras.serving.export.question_answering import QuestionAnswering
from tpt_keras.serving.export.warmup import write_warmup_requests
from tpt_keras.serving.versions import CONFIG_ASSET
from tpt_keras.serving.versions import LAST_VERSION
from tpt_keras.serving.versions import version_paths

PRECISIONS = ("float32", "bfloat16", "int8")


def export(
    model,
    export_dir,
    max_answer_length=None,
    sampler="greedy",
    precision="float32",
):
    """Writes the next version of a model.

    The server polls its folder and loads the highest number, so a version is
    renamed to its number when it is whole. One process exports to a folder at
    a time. Its signatures:

    - `serving_default`: `questions`, strings, to `answers`, `log_probs` and
      `status`;
    - `n_best`: `questions` to the sampler's best `answers` with `log_probs`
      and `scores`, and `status`;
    - `token_ids`: `encoder_token_ids` and `decoder_token_ids` to `logits`.

    Args:
        model: A `SequenceToSequence`.
        export_dir: Folder of the model's versions.
        max_answer_length: Longest answer given, in characters. Defaults to the
            model's.
        sampler: A `Sampler`, or a name in `SAMPLERS`: how answers are decoded.
        precision: One of `PRECISIONS`. `"float32"` and `"bfloat16"` are what
            is computed with and what the weights are; with `"int8"` these are
            kept as int8, with a scale for each output column, and made
            float32 when the version is loaded.

    Returns:
        Path of the new version.

    Raises:
        UsageError: If a value makes no sense, if Keras runs on another backend
            than TensorFlow, if another process exports to the folder, or if it
            cannot be written.
        ValueError: If the graph holds what a stock TF Serving refuses.
    """
    if keras.backend.backend() != "tensorflow":
        raise UsageError(
            "A SavedModel is TensorFlow's: export with "
            "KERAS_BACKEND=tensorflow, which takes what any backend trained."
        )
    check_names("precision", [precision], PRECISIONS)
    if max_answer_length is not None:
        check_positive_integer("max_answer_length", max_answer_length)
    dtype = "float32" if precision == "int8" else precision
    if not model.compute_dtype == model.variable_dtype == dtype:
        model = same_model(model, dtype)
    weights = Int8Weights(model) if precision == "int8" else None
    generator = Generator(model, sampler, max_answer_length)
    answering = QuestionAnswering(generator, weights)
    export_dir = pathlib.Path(export_dir)
    try:
        with folder_lock(export_dir, "exports"):
            return _write_version(model, answering, weights, export_dir)
    except PermissionError:
        raise  # no room would help
    except Exception as error:
        fault = disk_fault(error)
        if fault is None:
            raise
        # TensorFlow names its own temporary file first.
        raise UsageError(
            f"The export cannot be written to {str(export_dir)!r}: "
            f"{fault.rpartition('; ')[2]}. Make room there, or choose another "
            "folder."
        ) from error


def _write_version(model, answering, weights, export_dir):
    number = max(version_paths(export_dir), default=0) + 1
    if number > LAST_VERSION:
        raise UsageError(
            f"No version can follow {number - 1} in {str(export_dir)!r}. "
            "Remove its folder, or export to another."
        )
    version = export_dir / str(number)
    with whole_folder(version) as partial:
        _write(model, answering, weights, partial)
        check_graph(partial)
        config_path = partial / CONFIG_ASSET
        config_path.parent.mkdir()
        config = to_stored(model.config)
        config_path.write_text(json.dumps(config, indent=2))
        write_warmup_requests(partial)
        write_checksums(partial)
    return version


def _write(model, answering, weights, path):
    # Not by Keras's `ExportArchive`: it is given functions, of which it traces
    # every one twice, and saves every weight under two names.
    questions = tf.TensorSpec((None,), tf.string, name="questions")
    token_ids = [
        tf.TensorSpec((None, None), tf.int32, name=name)
        for name in ("encoder_token_ids", "decoder_token_ids")
    ]

    def logits(encoder_token_ids, decoder_token_ids):
        inputs = {
            "encoder_token_ids": encoder_token_ids,
            "decoder_token_ids": decoder_token_ids,
        }
        with weights or contextlib.nullcontext():
            return {"logits": model(inputs)}

    signatures = {
        name: tf.function(
            function, specs, autograph=False
        ).get_concrete_function()
        for name, function, specs in (
            ("serving_default", answering.answer, [questions]),
            ("n_best", answering.answer_n_best, [questions]),
            ("token_ids", logits, token_ids),
        )
    }
    module = tf.Module()
    module.weights = (
        weights.saved if weights else [v.value for v in model.variables]
    )
    module.token_of_character = answering.tokenizer.token_of_character
    tf.saved_model.save(module, str(path), signatures)
