"""Export of a model as a SavedModel that a stock TF Serving can run."""

import dataclasses
import json
import pathlib
import shutil

import keras
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tpt_keras.serving.question_answering import QuestionAnswering
from tpt_keras.serving.versions import CONFIG_ASSET
from tpt_keras.serving.versions import version_numbers


def export(model, export_dir):
    """Writes the next version of a model.

    The server polls its folder and loads the highest number, so a version is
    renamed to its number when it is whole.

    Args:
        model: A `Transformer`.
        export_dir: Folder of the model's versions.

    Returns:
        Path of the new version.

    Raises:
        ValueError: If the graph holds what a stock TF Serving refuses.
    """
    export_dir = pathlib.Path(export_dir)
    export_dir.mkdir(parents=True, exist_ok=True)
    partial = export_dir / "partial"
    shutil.rmtree(partial, ignore_errors=True)
    _write(model, partial)
    check_graph(partial)
    extra = partial / CONFIG_ASSET
    extra.parent.mkdir()
    extra.write_text(json.dumps(dataclasses.asdict(model.config), indent=2))
    version = export_dir / str(max(version_numbers(export_dir), default=0) + 1)
    partial.rename(version)
    return version


def check_graph(saved_model_dir):
    """Refuses a SavedModel that a stock TF Serving could not run.

    Such a server has no Python, and XLA is turned off in it: a graph with one
    of XLA's ops (`keras.ops.slice_update` makes one) loads and then fails at
    the first request.

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
        bodies = [graph.node] + [f.node_def for f in graph.library.function]
        for node in (node for nodes in bodies for node in nodes):
            if node.op.startswith("Xla") or "PyFunc" in node.op:
                refused.add(node.op)
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


def _write(model, path):
    answering = QuestionAnswering(model)
    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.track(answering.token_of_character)
    archive.add_endpoint(
        "serving_default",
        answering.answer,
        input_signature=[tf.TensorSpec((None,), tf.string, name="questions")],
    )
    archive.write_out(str(path), verbose=False)
