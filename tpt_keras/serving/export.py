"""Export of models as SavedModels for TF Serving."""

import contextlib
import json
import pathlib

import keras
import numpy as np
import tensorflow as tf

from tpt_keras.decoding import Generator
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.errors import check_positive_integer
from tpt_keras.errors import disk_fault
from tpt_keras.errors import require
from tpt_keras.files import folder_lock
from tpt_keras.files import whole_folder
from tpt_keras.models.configs import to_stored
from tpt_keras.models.weights import copy_model
from tpt_keras.serving.export_graph import AnswerGraph
from tpt_keras.serving.export_graph import check_graph
from tpt_keras.serving.export_weights import ConstantWeights
from tpt_keras.serving.export_weights import Int8Weights
from tpt_keras.serving.exported_files import CONFIG_ASSET
from tpt_keras.serving.exported_files import WARMUP_ASSET
from tpt_keras.serving.exported_files import version_paths
from tpt_keras.serving.exported_files import write_checksums

PRECISIONS = ("float32", "bfloat16", "int8")
# Up to the max_batch_size of config/batching.config.
WARMUP_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
_QUESTION = "Let z(k) = -3*k + 5. What is the tens digit of z(-31)?"


def export(
    model,
    export_dir,
    max_answer_length=None,
    sampler="greedy",
    precision="float32",
):
    """Exports a model as the next version in a folder.

    TF Serving polls the folder, so the version gets its number when it is
    complete. It has these signatures:

    - `serving_default`: `questions`, strings, to `answers`, `log_probs` and
      `status`;
    - `n_best`: `questions` to the sampler's best `answers` with `log_probs`
      and `scores`, and `status`;
    - `token_ids`: `encoder_token_ids` and `decoder_token_ids` to `logits`.

    Args:
        model: A `SequenceToSequence`.
        export_dir: Folder of the model's versions.
        max_answer_length: Most characters of an answer. Defaults to the
            model's.
        sampler: A `Sampler`, or a name in `SAMPLERS`.
        precision: `"float32"`, `"bfloat16"` or `"int8"`. With `"int8"`
            matrices are stored as int8 with a scale for each output column,
            and become float32 when the version is loaded.

    Returns:
        Path of the new version.

    Raises:
        UsageError: If an argument is invalid, if the model's weights or log
            probabilities are not finite, if Keras's backend is not TensorFlow,
            if another process exports to the folder, or if it cannot be
            written.
        MissingDependencyError: Without the extra `tpt_keras[serving]`.
        ValueError: If a stock TF Serving cannot run the graph.
    """
    require("tensorflow_serving", "serving")
    if keras.backend.backend() != "tensorflow":
        raise UsageError(
            "A SavedModel needs TensorFlow. Export with "
            "KERAS_BACKEND=tensorflow, which loads the models of any backend."
        )
    check_choice("precision", precision, PRECISIONS)
    if max_answer_length is not None:
        check_positive_integer("max_answer_length", max_answer_length)
    dtype = "float32" if precision == "int8" else precision
    if not model.compute_dtype == model.variable_dtype == dtype:
        model = copy_model(model, dtype)
    weights = (Int8Weights if precision == "int8" else ConstantWeights)(model)
    generator = Generator(model, sampler, max_answer_length)
    graph = AnswerGraph(generator, weights)
    export_dir = pathlib.Path(export_dir)
    try:
        with folder_lock(export_dir, "exports"):
            return _write_version(model, graph, weights, export_dir)
    except PermissionError:
        raise  # More room would not help.
    except Exception as error:
        fault = disk_fault(error)
        if fault is None:
            raise
        # TensorFlow puts the name of its temporary file first.
        raise UsageError(
            f"The export cannot be written to {str(export_dir)!r}: "
            f"{fault.rpartition('; ')[2]}. Make room there, or choose another "
            "folder.",
            path=export_dir,
        ) from error


def _write_version(model, graph, weights, export_dir):
    number = max(version_paths(export_dir), default=0) + 1
    version = export_dir / str(number)
    with whole_folder(version) as partial:
        _write_graph(model, graph, weights, partial)
        check_graph(partial)
        config_path = partial / CONFIG_ASSET
        config_path.parent.mkdir()
        config = to_stored(model.config)
        config_path.write_text(json.dumps(config, indent=2))
        _write_warmup_requests(partial / WARMUP_ASSET)
        write_checksums(partial)
    return version


def _write_graph(model, graph, weights, path):
    # Keras's `ExportArchive` would trace everything twice and save every
    # weight under two names.
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
        is_int8 = isinstance(weights, Int8Weights)
        with weights if is_int8 else contextlib.nullcontext():
            return {"logits": model(inputs)}

    signatures = {
        name: tf.function(
            function, specs, autograph=False
        ).get_concrete_function()
        for name, function, specs in (
            ("serving_default", graph.answer, [questions]),
            ("n_best", graph.answer_n_best, [questions]),
            ("token_ids", logits, token_ids),
        )
    }
    _check_answer(signatures["serving_default"], model.config.vocabulary)
    module = tf.Module()
    module.weights = weights.saved
    module.token_of_character = graph.tokenizer.token_of_character
    tf.saved_model.save(module, str(path), signatures)


def _check_answer(signature, vocabulary):
    """Raises a `UsageError` if the graph computes NaN or infinity."""
    characters = [symbol for symbol in vocabulary if len(symbol) == 1]
    questions = tf.constant(characters[:1], tf.string)
    log_probs = signature(questions=questions)["log_probs"]
    if not np.isfinite(log_probs).all():
        raise UsageError(
            "The model's log probabilities are NaN or infinite: its weights "
            "are too large for this precision. Use an earlier model, or the "
            "`precision` float32.",
            field="precision",
        )


def _write_warmup_requests(path):
    """Writes requests of several batch sizes, which TF Serving replays."""
    from tensorflow_serving.apis import predict_pb2
    from tensorflow_serving.apis import prediction_log_pb2

    with tf.io.TFRecordWriter(str(path)) as writer:
        for batch_size in WARMUP_BATCH_SIZES:
            request = predict_pb2.PredictRequest()
            request.model_spec.signature_name = "serving_default"
            request.inputs["questions"].CopyFrom(
                tf.make_tensor_proto([_QUESTION] * batch_size)
            )
            log = prediction_log_pb2.PredictionLog(
                predict_log=prediction_log_pb2.PredictLog(request=request)
            )
            writer.write(log.SerializeToString())
