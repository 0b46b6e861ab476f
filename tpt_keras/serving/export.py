"""Export of a model as a SavedModel that a stock TF Serving can run."""

import dataclasses
import json
import math
import pathlib
import shutil

import keras
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names
from tpt_keras.files import folder_lock
from tpt_keras.serving.checksums import write_checksums
from tpt_keras.serving.question_answering import QuestionAnswering
from tpt_keras.serving.versions import CONFIG_ASSET
from tpt_keras.serving.versions import LAST_VERSION
from tpt_keras.serving.versions import version_paths
from tpt_keras.serving.warmup import write_warmup_requests

PRECISIONS = ("float32", "bfloat16")
# What TensorFlow makes of a disk that is full, broken or not ours.
_DISK_ERRORS = (
    OSError,
    tf.errors.NotFoundError,
    tf.errors.OutOfRangeError,
    tf.errors.PermissionDeniedError,
    tf.errors.ResourceExhaustedError,
    tf.errors.UnknownError,
)


def export(
    model,
    export_dir,
    max_answer_length=None,
    beam_width=1,
    length_penalty=0.0,
    precision="float32",
):
    """Writes the next version of a model.

    The server polls its folder and loads the highest number, so a version is
    renamed to its number when it is whole. One process exports to a folder at
    a time. Its signatures:

    - `serving_default`: `questions`, strings, to `answers`, `log_probs` and
      `status`;
    - `n_best`: `questions` to the `beam_width` best `answers` with `log_probs`
      and `scores`, and `status`;
    - `token_ids`: `encoder_token_ids` and `decoder_token_ids` to `logits`.

    Args:
        model: A `Transformer`.
        export_dir: Folder of the model's versions.
        max_answer_length: Longest answer given, in characters. Defaults to the
            model's.
        beam_width: Number of answers to follow; `1` is greedy search.
        length_penalty: How much longer answers are preferred, see
            `beam_search`.
        precision: Dtype of the weights and of what is computed with them, one
            of `PRECISIONS`.

    Returns:
        Path of the new version.

    Raises:
        UsageError: If a value makes no sense, if another process exports to
            the folder, or if it cannot be written.
        ValueError: If the graph holds what a stock TF Serving refuses.
    """
    check_names("precision", [precision], PRECISIONS)
    if beam_width < 1:
        raise UsageError(f"beam_width must be positive. Received: {beam_width}")
    if max_answer_length is not None and max_answer_length < 1:
        raise UsageError(
            f"max_answer_length must be positive. Received: {max_answer_length}"
        )
    if not math.isfinite(length_penalty):
        raise UsageError(
            f"length_penalty must be a finite number. Received: "
            f"{length_penalty}"
        )
    model = _with_precision(model, precision)
    answering = QuestionAnswering(
        model, max_answer_length, beam_width, length_penalty
    )
    export_dir = pathlib.Path(export_dir)
    try:
        with folder_lock(export_dir, "exports"):
            return _write_version(model, answering, export_dir)
    except PermissionError:
        raise  # no room would help
    except _DISK_ERRORS as error:
        # TensorFlow names the operation and its own temporary file first.
        reason = str(error).rpartition("; ")[2].partition(" [Op:")[0]
        raise UsageError(
            f"The export cannot be written to {str(export_dir)!r}: {reason}. "
            "Make room there, or choose another folder."
        ) from error


def check_graph(saved_model_dir):
    """Refuses a SavedModel that a stock TF Serving could not run.

    Such a server has no Python and no custom ops, and XLA is turned off in it:
    a graph with one of XLA's ops (`keras.ops.slice_update` makes one) loads
    and then fails at the first request.

    Args:
        saved_model_dir: The SavedModel.

    Raises:
        ValueError: With the names of the ops.
    """
    saved_model = saved_model_pb2.SavedModel.FromString(
        (pathlib.Path(saved_model_dir) / "saved_model.pb").read_bytes()
    )
    refused = set()
    for meta_graph in saved_model.meta_graphs:
        graph = meta_graph.graph_def
        functions = {f.signature.name for f in graph.library.function}
        bodies = [graph.node] + [f.node_def for f in graph.library.function]
        for node in (node for nodes in bodies for node in nodes):
            if node.op.startswith("Xla") or "PyFunc" in node.op:
                refused.add(node.op)
            # Ops of other packages have a name space: "Text>Tokenize".
            if node.op not in functions and (
                ">" in node.op or op_def_registry.get(node.op) is None
            ):
                refused.add(f"{node.op} (custom)")
            if node.attr["_XlaMustCompile"].b:
                refused.add(f"{node.op} (marked for XLA)")
        for function in graph.library.function:
            if function.attr["_XlaMustCompile"].b:
                refused.add(f"{function.signature.name} (marked for XLA)")
    if refused:
        raise ValueError(
            "A stock TF Serving could not run this graph: "
            f"{', '.join(sorted(refused))}."
        )


def _with_precision(model, precision):
    if model.compute_dtype == model.variable_dtype == precision:
        return model
    converted = type(model)(model.config, name=model.name, dtype=precision)
    if len(converted.weights) != len(model.weights):
        raise UsageError(
            "The precision of a model that was quantized, or that LoRA is "
            f"enabled in, cannot be changed to {precision}. Load it anew, for "
            "saving merges LoRA, or quantize a model of that precision."
        )
    converted.set_weights(model.get_weights())
    return converted


def _write_version(model, answering, export_dir):
    number = max(version_paths(export_dir), default=0) + 1
    if number > LAST_VERSION:
        raise UsageError(
            f"No version can follow {number - 1} in {str(export_dir)!r}. "
            "Remove its folder, or export to another."
        )
    partial = export_dir / "partial"
    # Of a process that was killed.
    shutil.rmtree(partial, ignore_errors=True)
    try:
        _write(model, answering, partial)
        check_graph(partial)
        extra = partial / CONFIG_ASSET
        extra.parent.mkdir()
        config = dataclasses.asdict(model.config)
        extra.write_text(json.dumps(config, indent=2))
        write_warmup_requests(extra.parent)
        write_checksums(partial)
        return partial.rename(export_dir / str(number))
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write(model, answering, path):
    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.track(answering.tokenizer.token_of_character)
    questions = tf.TensorSpec((None,), tf.string, name="questions")
    for name, function in (
        ("serving_default", answering.answer),
        ("n_best", answering.answer_n_best),
    ):
        archive.add_endpoint(name, function, input_signature=[questions])
    archive.add_endpoint(
        "token_ids",
        lambda encoder_token_ids, decoder_token_ids: {
            "logits": model(
                {
                    "encoder_token_ids": encoder_token_ids,
                    "decoder_token_ids": decoder_token_ids,
                }
            )
        },
        input_signature=[
            tf.TensorSpec((None, None), tf.int32, name=name)
            for name in ("encoder_token_ids", "decoder_token_ids")
        ],
    )
    archive.write_out(str(path), verbose=False)
