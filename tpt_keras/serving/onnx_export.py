"""Export of models as ONNX graphs, for programs without Keras."""

import contextlib
import json
import pathlib
import warnings

import keras
import torch
from keras import ops
from keras import tree

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.errors import require
from tpt_keras.models import SequenceToSequence
from tpt_keras.models.configs import to_stored
from tpt_keras.models.weights import copy_model
from tpt_keras.models.weights import finite_values
from tpt_keras.serving.onnx_model import CONFIG_FILE
from tpt_keras.serving.onnx_model import DECODE_FILE
from tpt_keras.serving.onnx_model import ENCODE_FILE
from tpt_keras.serving.onnx_model import NEW
from tpt_keras.serving.versions import new_version
from tpt_keras.serving.versions import quiet
from tpt_keras.typing import StrPath

PRECISIONS = ("float32", "int8")
# Bytes.
_LARGEST_WEIGHT = 2**31


def export_onnx(
    model: SequenceToSequence,
    export_dir: StrPath,
    max_answer_length: int | None = None,
    precision: str = "float32",
) -> pathlib.Path:
    """Exports a model as the next version in a folder, for `OnnxModel`.

    docs/serving.md has the inputs and the outputs of its two graphs.
    The batch may have any size. A question may have any length, except of an
    LSTM: its graph has a step for each token, so that questions are padded.

    Args:
        model: A `SequenceToSequence`.
        export_dir: Folder of the model's versions.
        max_answer_length: Most characters of an answer. Defaults to the
            model's.
        precision: `"float32"`, or `"int8"`: the weights of products are int8
            with a scale for each 64 of a column (`MatMulNBits`), and ONNX
            Runtime rounds what they are multiplied with in the same way.

    Returns:
        Path of the new version.

    Raises:
        UsageError: If an argument is invalid, if the model's weights are not
            finite, if Keras's backend is not PyTorch, or if another process
            exports to the folder, or it has exports of another format.
        MissingDependencyError: Without the extra `tpt_keras[onnx]`.
    """
    require("onnxscript", "onnx")
    require("onnxruntime", "onnx")
    if keras.backend.backend() != "torch":
        raise UsageError(
            "An ONNX export needs PyTorch. Export with KERAS_BACKEND=torch, "
            "which loads the models of any backend."
        )
    check_choice("precision", precision, PRECISIONS)
    config = model.config
    if max_answer_length is not None:
        config = config.replace(max_answer_length=max_answer_length)
    if not model.compute_dtype == model.variable_dtype == "float32":
        model = copy_model(model, "float32")
    for variable in model.variables:
        finite_values(variable)
    with (
        torch.no_grad(),
        new_version(export_dir, ENCODE_FILE) as (version, partial),
    ):
        partial.mkdir()
        _write_graphs(model, config.max_answer_length, partial)
        if precision == "int8":
            _quantize(partial)
        text = json.dumps(to_stored(config), indent=2)
        (partial / CONFIG_FILE).write_text(text)
    return version


def _quantize(folder):
    """Replaces the graphs of a folder by those with int8 weights."""
    from onnxruntime.quantization import matmul_nbits_quantizer

    for name in (ENCODE_FILE, DECODE_FILE):
        path = folder / name
        quantizer = matmul_nbits_quantizer.MatMulNBitsQuantizer(
            str(path),
            bits=8,
            block_size=64,
            is_symmetric=True,
            # Products of int8. With float32 (1) they take ten times as long.
            accuracy_level=4,
        )
        with quiet(matmul_nbits_quantizer.__name__):
            quantizer.process()
        quantizer.model.save_model_to_file(str(path))
        (folder / f"{name}.data").unlink()


def _write_graphs(model, max_answer_length, folder):
    length = model.config.max_question_length + 2
    token_ids = ops.ones((3, length), "int32")
    # Smaller along the axes that may vary.
    others = token_ids[1:, 1:]
    cache = model.init_cache(token_ids, max_answer_length)
    other_cache = model.init_cache(others, max_answer_length)
    names = _names(cache)

    def encode(token_ids):
        return tuple(
            tree.flatten(model.init_cache(token_ids, max_answer_length))
        )

    def decode_step(token_ids, index, tensors):
        logits, changed = model.decode_step(
            token_ids, tree.pack_sequence_as(cache, tensors), index
        )
        return logits, *tree.flatten(_changing(model, changed))

    program = _traced(
        model, encode, (token_ids,), (others,), ["token_ids"], names
    )
    program.save(folder / ENCODE_FILE, external_data=True)
    index = ops.convert_to_tensor(1, "int32")
    changed = [f"{NEW}{name}" for name in _names(_changing(model, cache))]
    program = _traced(
        model,
        decode_step,
        (token_ids[:, 0], index, tuple(tree.flatten(cache))),
        (others[:, 0], index, tuple(tree.flatten(other_cache))),
        ["token_ids", "index", *names],
        ["logits", *changed],
    )
    program.save(folder / DECODE_FILE, external_data=True)


def _changing(model, cache):
    return {name: cache[name] for name in model.changing_caches}


def _names(cache):
    """Names of the tensors of a cache: `"self_attention_0_1"`."""
    return [
        "_".join(map(str, path)) for path, _ in tree.flatten_with_path(cache)
    ]


def _traced(model, function, inputs, others, input_names, output_names):
    """Traces a graph of a function that calls a model.

    Axes that differ between both inputs may vary.
    """
    import onnxscript.optimizer

    module = torch.nn.Module()
    module.model = model
    module.forward = function
    axes = tree.map_structure(_different_axes, inputs, others)
    with warnings.catch_warnings(), quiet("torch.onnx"), _plain_attention():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module,
            inputs,
            dynamo=True,
            dynamic_shapes=axes,
            verbose=False,
            input_names=input_names,
            output_names=output_names,
        )
    # Weights that are reshaped become weights of that shape.
    onnxscript.optimizer.optimize(
        program.model,
        input_size_limit=_LARGEST_WEIGHT,
        output_size_limit=_LARGEST_WEIGHT,
    )
    # Unrolled loops fix an axis, which the graph does not tell.
    ranges = program.exported_program.range_constraints
    fixed = {
        str(symbol): int(size.upper)
        for symbol, size in ranges.items()
        if size.lower == size.upper
    }
    for value in program.model.graph.inputs:
        for axis, size in enumerate(value.shape):
            value.shape[axis] = fixed.get(str(size), size)
    return program


def _different_axes(x, other):
    return {
        axis: torch.export.Dim.AUTO
        for axis, size in enumerate(x.shape)
        if size != other.shape[axis]
    }


@contextlib.contextmanager
def _plain_attention():
    """Turns PyTorch's fused attention off, which needs more ops in ONNX."""
    was_enabled = keras.config.is_flash_attention_enabled() is not False
    keras.config.disable_flash_attention()
    try:
        yield
    finally:
        if was_enabled:
            keras.config.enable_flash_attention()
