"""Weights of models: copies of another dtype, adapters, int8 files."""

import hashlib
import json
from typing import Self

import keras
import numpy as np
import safetensors
import safetensors.numpy
from keras import ops

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_positive_integer
from tpt_keras.files import reading
from tpt_keras.files import whole_file
from tpt_keras.layers import Projection
from tpt_keras.models.configs import ModelConfig
from tpt_keras.models.configs import from_stored
from tpt_keras.models.configs import to_stored
from tpt_keras.typing import StrPath

COMPRESSED_FILE = "model.int8.safetensors"
# Suffix of the name of a weight's scales.
SCALE = "|scale"
_MAX_INT8 = 127
_MAX_NAMES = 5


def copy_model(
    model: keras.Model,
    dtype: str | keras.DTypePolicy,
    config: ModelConfig | None = None,
    model_class: type | None = None,
) -> keras.Model:
    """Makes a new model of a dtype with the same weights, not compiled.

    The configuration, which has to have the same weights, and the class default
    to those of `model`. For the errors see `copy_weights`.
    """
    copy = (model_class or type(model))(
        config or model.config, name=model.name, dtype=dtype
    )
    copy_weights(model, copy)
    return copy


def copy_weights(source: keras.Model, target: keras.Model) -> None:
    """Copies weights into a new model, which may have another dtype.

    The memory of streams is not copied.

    Raises:
        UsageError: If `source` is quantized, or has LoRA enabled.
    """
    olds, news = map(_lasting_weights, (source, target))
    if len(olds) != len(news):
        raise UsageError(
            "A model that is quantized or has LoRA enabled cannot be copied, "
            "to another dtype or for evaluation. Save and load it to merge "
            "LoRA, or quantize the new model.",
            field="dtype",
        )
    # One by one, so that only two models are in memory.
    for new, old in zip(news, olds):
        new.assign(ops.convert_to_numpy(old))


def _lasting_weights(model):
    memory = {id(v) for v in keras.tree.flatten(getattr(model, "memory", ()))}
    return [weight for weight in model.weights if id(weight) not in memory]


def enable_lora(model: keras.Model, rank: int) -> None:
    """Gives every map of a model LoRA adapters, and freezes its other weights.

    The maps' biases train as well. Call it before `compile`, on a model whose
    weights are loaded. Layers that are not of this package, such as a new
    head, stay as they are, because they may have no trained weights.

    Args:
        model: A model with `Projection`s, such as a `Transformer`.
        rank: Rank of the adapters.

    Example:

    >>> model = Transformer.from_preset("tp_transformer_tiny", num_layers=1)
    >>> enable_lora(model, rank=4)
    >>> sorted({weight.name for weight in model.trainable_weights})
    ['bias', 'lora_kernel_a', 'lora_kernel_b']
    """
    check_positive_integer("rank", rank)
    layers = [layer for layer in _package_layers(model) if layer is not model]
    for layer in layers:
        layer.trainable = False
    for layer in layers:
        if isinstance(layer, Projection):
            layer.trainable = True
            layer.enable_lora(rank)


def _package_layers(layer):
    """Returns the layers of this package, and all that are in them."""
    # The public `Model.layers` lacks the layers in layers.
    if type(layer).__module__.startswith("tpt_keras."):
        return list(layer._flatten_layers())
    parts = layer._flatten_layers(include_self=False, recursive=False)
    return [each for part in parts for each in _package_layers(part)]


def is_quantized(model: keras.Model) -> bool:
    """Returns `True` if a layer has quantized weights, as `quantize` makes."""
    quantized = keras.dtype_policies.QuantizedDTypePolicy
    layers = model._flatten_layers()
    return any(isinstance(layer.dtype_policy, quantized) for layer in layers)


class CompressedModel:
    """A model's configuration and its weights as int8 with scales.

    Weights of two or more axes are int8 with a float32 scale for each output
    column; vectors are float32. They can be assigned to a model of any dtype.
    (Keras's `model.quantize("int8")` computes with integers instead.)

    The file is a safetensors file. A weight has its path in the model as its
    name, `embedding/role/kernel`, and its scales the same name with `|scale`.
    The metadata has the configuration as JSON (`config`) and a `sha256`.

    Args:
        config: A `ModelConfig`, such as a `TransformerConfig`.
        arrays: Dict of names to arrays, as in the file.

    Example:

    >>> model = Transformer.from_preset("tp_transformer_tiny", num_layers=1)
    >>> compressed = CompressedModel.of(model)
    >>> compressed.arrays["embedding/role/kernel"].dtype
    dtype('int8')
    >>> compressed.arrays["embedding/role/kernel|scale"].shape
    (1, 128)
    >>> other = Transformer(compressed.config, dtype="mixed_bfloat16")
    >>> compressed.assign_to(other)
    """

    def __init__(
        self, config: ModelConfig, arrays: dict[str, np.ndarray]
    ) -> None:
        self.config = config
        self.arrays = arrays

    @classmethod
    def of(cls, model: keras.Model) -> Self:
        """Compresses a `SequenceToSequence`.

        Raises:
            UsageError: If it is quantized, or has adapters or weights of the
                same name or that are not finite.
        """
        model = copy_model(model, "float32")
        num_input_axes = {
            layer.kernel.path: layer.num_input_axes
            for layer in model._flatten_layers()
            if isinstance(layer, Projection)
        }
        arrays = {}
        for variable in model.weights:
            name = weight_name(variable)
            values = finite_values(variable)
            if name in arrays:
                raise UsageError(f"Two weights have the name {name}.")
            if values.ndim < 2:
                arrays[name] = values
                continue
            # Only a map to several heads has more than one output axis.
            count = num_input_axes.get(variable.path, values.ndim - 1)
            arrays[name], arrays[name + SCALE] = _quantize(
                values, tuple(range(count))
            )
        return cls(model.config, arrays)

    @classmethod
    def read(cls, path: StrPath) -> Self:
        """Reads a file; raises an `UnreadableFileError` if it cannot."""
        with (
            reading(path, "Copy it again, or compress its model again."),
            safetensors.safe_open(path, framework="numpy") as file,
        ):
            metadata = file.metadata()
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if metadata["sha256"] != _checksum(metadata["config"], arrays):
                raise ValueError("its checksum differs")
            config = from_stored(json.loads(metadata["config"]))
        return cls(config, arrays)

    def write(self, path: StrPath) -> None:
        """Writes a file atomically. Its folder has to exist."""
        config = json.dumps(to_stored(self.config))
        sha256 = _checksum(config, self.arrays)
        metadata = {"config": config, "sha256": sha256}
        content = safetensors.numpy.save(self.arrays, metadata)
        with whole_file(path) as partial:
            partial.write_bytes(content)

    def assign_to(self, model: keras.Model) -> None:
        """Assigns these weights to a model of this configuration.

        Raises:
            UsageError: If the model has other weights, with their names.
        """
        variables = {weight_name(v): v for v in model.weights}
        shapes = {name: array.shape for name, array in self.arrays.items()}
        check_shapes(
            {k: v for k, v in shapes.items() if not k.endswith(SCALE)},
            {name: tuple(v.shape) for name, v in variables.items()},
        )
        # One by one, so that there is no second float32 model in memory.
        for name, variable in variables.items():
            values = self.arrays[name]
            if values.dtype == "int8":
                values = values * self.arrays[name + SCALE]
            variable.assign(values)


def weight_name(variable: keras.Variable) -> str:
    """A weight's name in the file: its path without the model's name."""
    return variable.path.partition("/")[2]


def finite_values(variable: keras.Variable) -> np.ndarray:
    """Returns a weight's values; a `UsageError` if one is not finite."""
    values = np.asarray(ops.convert_to_numpy(variable))
    if not np.isfinite(values.astype("float32")).all():
        raise UsageError(
            f"The weight {weight_name(variable)} ({variable.dtype}) has values "
            "that are NaN or infinite. Use an earlier model."
        )
    return values


def check_shapes(
    shapes: dict[str, tuple[int, ...]], expected: dict[str, tuple[int, ...]]
) -> None:
    """Raises a `UsageError` if weights, by name, are not those of a model."""
    wrong = [
        f"{name} {shapes.get(name, 'missing')} instead of "
        f"{expected.get(name, 'nothing')}"
        for name in {**shapes, **expected}
        if shapes.get(name) != expected.get(name)
    ]
    if wrong:
        more = len(wrong) - _MAX_NAMES
        raise UsageError(
            "The weights belong to another model: "
            + ", ".join(wrong[:_MAX_NAMES])
            + (f" and {more} more." if more > 0 else ".")
        )


def _quantize(values, input_axes):
    """int8 values and the scale of each output column."""
    scale = np.abs(values).max(input_axes, keepdims=True) / _MAX_INT8
    scale[scale == 0.0] = 1.0
    # Subnormal scales are coarse, so that a quotient can exceed the range.
    quotients = np.rint(values / scale).clip(-_MAX_INT8, _MAX_INT8)
    return quotients.astype("int8"), scale


def _checksum(config, arrays):
    """A checksum of everything in the file, which safetensors lacks."""
    digest = hashlib.sha256(config.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array))
    return digest.hexdigest()
