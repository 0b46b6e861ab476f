import io
import math
import pickle
import struct
import zipfile
from typing import NamedTuple

import numpy as np

from tpt_keras.checkpoints.inert_pickle import MAX_BYTES
from tpt_keras.checkpoints.inert_pickle import Inert
from tpt_keras.checkpoints.inert_pickle import Name
from tpt_keras.checkpoints.inert_pickle import read_pickle

ZIP_START = b"PK\x03\x04"
# The first pickle of PyTorch's old stream.
_STREAM_MAGIC = 0x1950A86A20F9469CFC6C
_BFLOAT16 = "torch.BFloat16Storage"
_FLOATS = {
    "torch.DoubleStorage": "<f8",
    "torch.FloatStorage": "<f4",
    "torch.HalfStorage": "<f2",
    # NumPy has none: it is the upper half of a float32.
    _BFLOAT16: "<u2",
}
# In the old stream, they say where the next storage begins.
_DTYPES = {
    **_FLOATS,
    "torch.ComplexDoubleStorage": "<c16",
    "torch.ComplexFloatStorage": "<c8",
    "torch.LongStorage": "<i8",
    "torch.IntStorage": "<i4",
    "torch.ShortStorage": "<i2",
    "torch.CharStorage": "<i1",
    "torch.ByteStorage": "<u1",
    "torch.BoolStorage": "<b1",
    "torch.QInt8Storage": "<i1",
    "torch.QUInt8Storage": "<u1",
    "torch.QInt32Storage": "<i4",
}
_REBUILD = "torch._utils._rebuild_"
_TENSOR = f"{_REBUILD}tensor_v2"
_PARAMETER = f"{_REBUILD}parameter"
_OTHER_TENSORS = {
    f"{_REBUILD}sparse_tensor": "a sparse tensor",
    f"{_REBUILD}qtensor": "a quantized tensor",
    f"{_REBUILD}nested_tensor": "a nested tensor",
    f"{_REBUILD}meta_tensor_no_storage": "a meta tensor, without values",
}
# What PyTorch's own tensors call besides.
_HARMLESS = ("torch.Size", "torch.device", "torch.serialization._get_layout")
_MOST_DIMENSIONS = 8


class _Storage(NamedTuple):
    """Where the values of tensors are."""

    kind: str
    key: str
    numel: int

    @property
    def num_bytes(self):
        return self.numel * np.dtype(_DTYPES[self.kind]).itemsize


class TorchFile:
    """A file of `torch.save`, in either format, read without PyTorch.

    It is not trusted. Nothing in it is run, and nothing is made that is larger
    than the file; `torch.load` makes whatever size a few bytes tell it.

    Args:
        file: The file, open for reading bytes. Besides PyTorch's zip archive
            and its old stream it may hold a mere pickle.

    Attributes:
        value: What was saved, with `Inert`s for its tensors.
        functions: Names of the functions it wants called, apart from those
            that PyTorch makes tensors with.
        classes: Names of the classes it wants instances of.

    Raises:
        pickle.UnpicklingError: If it is damaged or another file.
    """

    def __init__(self, file):
        self._file = file
        self._storages = {}
        self._loaded = {}
        # Bytes of tensors, and of storages, that may still be made.
        size = file.seek(0, io.SEEK_END)
        self._tensor_bytes = self._storage_bytes = size
        file.seek(0)
        is_zip = file.read(len(ZIP_START)) == ZIP_START
        file.seek(0)
        try:
            content = self._open_zip() if is_zip else self._open_stream()
        # BadZipFile, EOFError, KeyError, OSError, TypeError, ...
        except Exception as error:
            raise pickle.UnpicklingError("something in it is broken") from error
        self.value = content.value
        self.classes = content.classes
        self.functions = [
            name
            for name in content.functions
            if name not in _HARMLESS and not name.startswith(_REBUILD)
        ]

    def read(self, tensor):
        """The values of a tensor.

        Args:
            tensor: What stands for it in `value`. Each is read once.

        Returns:
            Array of float32.

        Raises:
            TypeError: If it is no tensor of real numbers; says what it is.
            pickle.UnpicklingError: If the file is damaged, or its tensors are
                larger than itself.
        """
        try:
            if isinstance(tensor, Inert) and tensor.name == _PARAMETER:
                tensor = tensor.arguments[0]
            other = _other_than_floats(tensor)
            if not other:
                return self._read(*tensor.arguments[:4])
        except pickle.UnpicklingError:
            raise
        # BadZipFile, KeyError, OSError, TypeError, ...
        except Exception as error:
            raise pickle.UnpicklingError("something in it is broken") from error
        raise TypeError(other)

    def _read(self, storage, offset, shape, strides):
        if len(shape) != len(strides) or len(shape) > _MOST_DIMENSIONS:
            raise ValueError("a shape that is none")
        _check_sizes(offset, *shape, *strides)
        values = self._load(storage)
        # An expanded tensor is one value that is seen many times.
        size = math.prod(shape)
        self._tensor_bytes -= size * values.itemsize
        if self._tensor_bytes < 0:
            raise pickle.UnpicklingError("its tensors are larger than itself")
        last = sum((n - 1) * step for n, step in zip(shape, strides))
        if size and offset + last >= len(values):
            raise ValueError("a tensor beyond its storage")
        view = np.lib.stride_tricks.as_strided(
            values[offset:], shape, [s * values.itemsize for s in strides]
        )
        with np.errstate(over="ignore"):
            return view.astype("float32")

    def _load(self, storage):
        """The values of a storage, as NumPy knows them."""
        if storage.key not in self._loaded:
            self._storage_bytes -= storage.num_bytes
            if self._storage_bytes < 0:
                raise ValueError("storages that are larger than the file")
            content = self._read_storage(storage)
            if len(content) != storage.num_bytes:
                raise ValueError("a storage that is cut short")
            values = np.frombuffer(content, _DTYPES[storage.kind])
            if storage.kind == _BFLOAT16:
                values = (values.astype("<u4") << 16).view("<f4")
            self._loaded[storage.key] = values
        return self._loaded[storage.key]

    def _open_zip(self):
        archive = zipfile.ZipFile(self._file)
        [pickle_path] = [
            name for name in archive.namelist() if name.endswith("/data.pkl")
        ]
        folder = pickle_path.removesuffix("data.pkl")

        def read(name, most_bytes):
            entry = archive.getinfo(folder + name)
            # As PyTorch packs them: what is compressed could be any size.
            if (
                entry.compress_type != zipfile.ZIP_STORED
                or entry.compress_size != entry.file_size
                or entry.file_size > most_bytes
            ):
                raise ValueError("an entry that is not PyTorch's")
            return archive.read(entry)

        if f"{folder}byteorder" in archive.namelist():
            _check_byte_order(read("byteorder", 10) == b"little")
        self._read_storage = lambda storage: read(
            f"data/{storage.key}", storage.num_bytes
        )
        stream = io.BytesIO(read("data.pkl", MAX_BYTES))
        return read_pickle(stream, self._persistent_load)

    def _open_stream(self):
        stream = io.BytesIO(self._file.read(MAX_BYTES))
        content = read_pickle(stream, self._persistent_load)
        if content.value != _STREAM_MAGIC:
            return content
        read_pickle(stream)  # the protocol's version
        _check_byte_order(read_pickle(stream).value["little_endian"])
        content = read_pickle(stream, self._persistent_load)
        keys = read_pickle(stream).value
        offsets = {}
        end = stream.tell()
        for key in keys:
            offsets[key] = end
            # A storage begins with the number of its values.
            end += 8 + self._storages[key].num_bytes

        def read(storage):
            self._file.seek(offsets[storage.key])
            if self._file.read(8) != struct.pack("<q", storage.numel):
                raise ValueError("another storage")
            return self._file.read(storage.num_bytes)

        self._read_storage = read
        return content

    def _persistent_load(self, persistent_id):
        """What stands for a storage, or for the class of a layer."""
        kind, what, *rest = persistent_id
        if kind == "module":
            return what
        key, _, numel, *_ = rest
        _check_sizes(numel)
        if type(key) is not str or type(what) is not Name:
            raise TypeError("a storage that is none")
        return self._storages.setdefault(key, _Storage(what, key, numel))


def _check_sizes(*sizes):
    if not all(type(n) is int and 0 <= n < 2**63 for n in sizes):
        raise ValueError("a size that is none")


def _other_than_floats(tensor):
    """What something is that is no tensor of real numbers; else nothing."""
    if not isinstance(tensor, Inert):
        return f"a value of type {type(tensor).__name__}"
    if tensor.name != _TENSOR:
        return _OTHER_TENSORS.get(tensor.name, f"of {tensor.name!a}")
    kind = tensor.arguments[0].kind
    return "" if kind in _FLOATS else f"a tensor of {kind!a}"


def _check_byte_order(is_little):
    if is_little is not True:
        raise ValueError("values in big-endian order")
