import io
import json
import math
import pathlib
import struct
import zipfile
import zlib

import numpy as np
from keras import ops

from tpt_keras.errors import UsageError
from tpt_keras.files import whole_file
from tpt_keras.layers import Projection
from tpt_keras.models.count_weights import count_weights
from tpt_keras.models.same_model import same_model
from tpt_keras.models.stored_config import from_stored
from tpt_keras.models.stored_config import to_stored

COMPRESSED_FILE = "model.int8.npz"
# What stands behind a weight's name in that of its scales.
SCALE = "|scale"
_CONFIG = "config"
_LARGEST = 127
# How many names a message lists of those that are wrong.
_MAX_NAMES = 5
# What a damaged archive, or a header or a configuration in it, makes NumPy,
# zipfile, json and the configurations raise.
_DAMAGE = (
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


class CompressedModel:
    """A model's configuration, and its weights as int8 with scales.

    A quarter of the bytes, for a model that is kept or sent. It is computed
    with as ever: what is loaded has weights of any dtype. (Keras's own
    `model.quantize("int8")` is for computing with integers.)

    Every weight of two axes or more is int8, with a float32 scale for each of
    its output columns, which is the largest of them by 127; vectors are
    float32. The file is an archive as `np.savez` writes it, of

    - `config`: the configuration as JSON in UTF-8, bytes;
    - a weight's path behind the model's name, `embedding/role/kernel`: its
      values;
    - the same with `|scale`: what to multiply them by, of as many axes.

    Args:
        config: A `ModelConfig`, such as a `TransformerConfig`.
        arrays: Dict of name to array, as in the file.

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

    def __init__(self, config, arrays):
        self.config = config
        self.arrays = arrays

    @classmethod
    def of(cls, model):
        """Compresses a model.

        Args:
            model: A `SequenceToSequence`.

        Returns:
            A `CompressedModel`.

        Raises:
            UsageError: If the model was quantized, if LoRA is enabled in it,
                or if weights of it are NaN or infinite.
        """
        model = same_model(model, "float32")
        num_input_axes = {
            layer.kernel.path: layer.num_input_axes
            for layer in model._flatten_layers()
            if isinstance(layer, Projection)
        }
        arrays = {}
        for variable in model.weights:
            name = weight_name(variable)
            values = np.asarray(ops.convert_to_numpy(variable))
            if not np.isfinite(values).all():
                raise UsageError(
                    f"The weight {name} holds values that are NaN or infinite: "
                    "its training had failed. Take an earlier model."
                )
            if values.ndim < 2:
                arrays[name] = values
                continue
            # The last axis is the output's, but for maps to several heads.
            count = num_input_axes.get(variable.path, values.ndim - 1)
            arrays[name], arrays[name + SCALE] = _quantize(
                values, tuple(range(count))
            )
        return cls(model.config, arrays)

    @classmethod
    def read(cls, path):
        """Reads a compressed model.

        The file is not trusted: nothing is made that is larger than itself,
        and its configuration is of a model that has as many weights as it.

        Args:
            path: The file.

        Returns:
            A `CompressedModel`.

        Raises:
            UsageError: If there is no such file, or if it is damaged or
                something else.
        """
        path = pathlib.Path(path)
        if not path.is_file():
            raise UsageError(f"There is no compressed model {str(path)!r}.")
        with path.open("rb") as file:
            try:
                config, arrays = _read(file, path.stat().st_size)
            except _DAMAGE as error:
                reason = str(error).strip() or type(error).__name__
                raise UsageError(
                    f"The compressed model {str(path)!r} is damaged, or of "
                    f"another version ({reason.splitlines()[0][:200]}). Copy "
                    "it again, or make it anew from its model."
                ) from error
        return cls(config, arrays)

    def write(self, path):
        """Writes the file, which is there only when it is whole.

        Args:
            path: The file. Its folder has to be there.

        Raises:
            OSError: If it cannot be written.
        """
        config = json.dumps(to_stored(self.config)).encode()
        with whole_file(path) as partial, partial.open("wb") as file:
            # Not compressed any further: it would save 8%, and what is
            # unpacked could be any size.
            np.savez(
                file, **{_CONFIG: np.frombuffer(config, "uint8"), **self.arrays}
            )

    def assign_to(self, model):
        """Gives a model these weights.

        Args:
            model: A `SequenceToSequence` of this configuration, or of one that
                differs in what no weight depends on (`dropout`).

        Raises:
            UsageError: If the model has other weights; with the names of the
                missing, unknown and misshapen ones.
        """
        variables = {
            weight_name(variable): variable for variable in model.weights
        }
        held = {name for name in self.arrays if not name.endswith(SCALE)}
        misshapen = [
            f"{name} {self.arrays[name].shape} instead of "
            f"{tuple(variables[name].shape)}"
            for name in held & variables.keys()
            if self.arrays[name].shape != tuple(variables[name].shape)
        ]
        faults = [
            f"{kind}: {_some(sorted(names))}"
            for kind, names in (
                ("missing", variables.keys() - held),
                ("unknown", held - variables.keys()),
                ("misshapen", misshapen),
            )
            if names
        ]
        if faults:
            raise UsageError(
                "The compressed weights are another model's. "
                f"{'; '.join(faults)}."
            )
        # One by one: in memory is the model, and no second.
        for name, variable in variables.items():
            values = self.arrays[name]
            if values.dtype == "int8":
                values = values * self.arrays[name + SCALE]
            variable.assign(values)


def weight_name(variable):
    """A weight's name in the file: its path behind the model's name."""
    return variable.path.partition("/")[2]


def _quantize(values, input_axes):
    """int8 values, and the scale of each output column."""
    scale = np.abs(values).max(input_axes, keepdims=True) / _LARGEST
    scale[scale == 0.0] = 1.0
    return np.rint(values / scale).astype("int8"), scale


def _read(file, num_bytes):
    """The configuration and the arrays, or one of `_DAMAGE`."""
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        if any(e.compress_type != zipfile.ZIP_STORED for e in entries):
            raise ValueError("it is compressed once more")
        # Several entries may claim the same bytes.
        if sum(entry.file_size for entry in entries) > num_bytes:
            raise ValueError("it claims to hold more than it does")
        arrays = {
            entry.filename.removesuffix(".npy"): _array(archive.read(entry))
            for entry in entries
        }
    stored = json.loads(arrays.pop(_CONFIG).tobytes().decode())
    config = from_stored(stored)
    num_weights = 0
    for name, values in arrays.items():
        if values.dtype == "int8":
            _check_scale(name, values, arrays[name + SCALE])
        elif values.dtype != "float32" or not np.isfinite(values).all():
            raise ValueError(f"the values of {name} are no weights")
        if not name.endswith(SCALE):
            num_weights += values.size
    _check_sizes(stored, num_weights)
    # Before a model of any size is made.
    if count_weights(config) != num_weights:
        raise ValueError(f"its configuration is not one of {num_weights:,}")
    return config, arrays


def _array(content):
    """An array of the content of a `.npy` file, without a copy.

    NumPy's own reading makes what the header says before there is as much.
    """
    stream = io.BytesIO(content)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("an array of another version of NumPy's format")
    shape, in_columns, dtype = np.lib.format.read_array_header_1_0(stream)
    if in_columns or dtype.hasobject:
        raise ValueError("an array that is not laid out as written")
    return np.frombuffer(content, dtype, offset=stream.tell()).reshape(shape)


def _check_scale(name, values, scale):
    if scale.ndim != values.ndim or any(
        size not in (1, of_values)
        for size, of_values in zip(scale.shape, values.shape)
    ):
        raise ValueError(f"the scales of {name} are of another shape")


def _check_sizes(stored, num_weights):
    """Raises a `ValueError` if a size is larger than all weights together.

    Counting a configuration's weights makes those of its options.
    """
    options = [v for v in stored.values() if isinstance(v, dict)]
    sizes = [
        size
        for values in (stored, *options)
        for size in values.values()
        if isinstance(size, int)
    ]
    if any(math.fabs(size) > num_weights for size in sizes):
        raise ValueError(f"its configuration is not one of {num_weights:,}")


def _some(names):
    """The first names, and how many more there are."""
    text = ", ".join(names[:_MAX_NAMES])
    more = len(names) - _MAX_NAMES
    return f"{text} and {more} more" if more > 0 else text
