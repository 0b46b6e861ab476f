"""Export of models as SavedModels for TF Serving."""

import json
import pathlib
import shutil

import keras
import tensorflow as tf

from tpt_keras.decoding import Generator
from tpt_keras.decoding import Sampler
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.errors import require
from tpt_keras.models import SequenceToSequence
from tpt_keras.models.configs import to_stored
from tpt_keras.models.weights import copy_model
from tpt_keras.serving.export_graph import AnswerGraph
from tpt_keras.serving.export_graph import ConstantWeights
from tpt_keras.serving.export_graph import check_graph
from tpt_keras.serving.saved_model import CONFIG_ASSET
from tpt_keras.serving.saved_model import GRAPH_FILE
from tpt_keras.serving.versions import new_version
from tpt_keras.typing import StrPath

PRECISIONS = ("float32", "bfloat16")
# Requests that TF Serving replays before it reports a version as available.
WARMUP_ASSET = "assets.extra/tf_serving_warmup_requests"
# Up to the max_batch_size of config/batching.config.
WARMUP_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)


def export(
    model: SequenceToSequence,
    export_dir: StrPath,
    max_answer_length: int | None = None,
    sampler: str | Sampler = "greedy",
    precision: str = "float32",
    card: StrPath | None = None,
) -> pathlib.Path:
    """Exports a model as the next version in a folder.

    TF Serving polls the folder, so the version gets its number when it is
    complete. docs/serving.md has its signatures.

    Args:
        model: A `SequenceToSequence`.
        export_dir: Folder of the model's versions.
        max_answer_length: Most characters of an answer. Defaults to the
            model's.
        sampler: A `Sampler`, or a name in `SAMPLERS`.
        precision: `"float32"` or `"bfloat16"`.
        card: File that describes the model, which the version keeps as
            `assets.extra/README.md`.

    Returns:
        Path of the new version.

    Raises:
        UsageError: If an argument is invalid, if the model's weights are not
            finite, if Keras's backend is not TensorFlow, or if another process
            exports to the folder, or it has exports of another format.
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
    config = model.config
    if max_answer_length is not None:
        config = config.replace(max_answer_length=max_answer_length)
    if not model.compute_dtype == model.variable_dtype == precision:
        model = copy_model(model, precision)
    generator = Generator(model, sampler, max_answer_length)
    graph = AnswerGraph(generator, ConstantWeights(model))
    with new_version(export_dir, GRAPH_FILE) as (version, partial):
        _write_graph(graph, partial)
        check_graph(partial)
        config_path = partial / CONFIG_ASSET
        config_path.parent.mkdir()
        config_path.write_text(json.dumps(to_stored(config), indent=2))
        if card is not None:
            shutil.copyfile(card, config_path.with_name("README.md"))
        _write_warmup_requests(partial / WARMUP_ASSET, model)
    return version


def _write_graph(graph, path):
    # Keras's `ExportArchive` would trace everything twice and save every
    # weight under two names.
    signatures = {
        "serving_default": graph.answer,
        "n_best": graph.answer_n_best,
        "score": graph.score,
    }
    module = tf.Module()
    module.weights = graph.weights.saved
    module.token_of_symbol = graph.tokenizer.token_of_symbol
    # A process that loads an export would keep it for good with them.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(module, str(path), signatures, options)


def _write_warmup_requests(path, model):
    from tensorflow_serving.apis import prediction_log_pb2

    tokenizer = model.tokenizer
    # A question of blanks is empty. A model may have no symbols.
    symbol = next(filter(str.strip, tokenizer.id_of_symbol), "")
    length = 1 + model.config.max_question_length // 3
    question = tokenizer.separator.join([symbol] * length)
    # TensorFlow optimizes the graph of each signature at its first request.
    requests = [("serving_default", size) for size in WARMUP_BATCH_SIZES]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, batch_size in [*requests, ("n_best", 1), ("score", 1)]:
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = signature
            texts = {"questions": question}
            if signature == "score":
                texts["answers"] = symbol
            for name, text in texts.items():
                request.inputs[name].CopyFrom(
                    tf.make_tensor_proto([text] * batch_size)
                )
            writer.write(log.SerializeToString())
