import io
import pickle
import struct
import zipfile

import numpy as np
import pytest

from tests.bounded import bounded
from tpt_keras.checkpoints.torch_file import TorchFile

torch = pytest.importorskip(
    "torch", reason="the released checkpoints need tpt_keras[torch]"
)


@pytest.fixture(params=["zip", "stream"])
def save(request):
    """Saves in one of PyTorch's formats; gives the file."""

    def save(value):
        file = io.BytesIO()
        torch.save(
            value, file, _use_new_zipfile_serialization=request.param == "zip"
        )
        return file

    return save


def read_all(file):
    file = TorchFile(file)
    return [file.read(tensor) for tensor in file.value]


BASE = torch.arange(24, dtype=torch.float32).reshape(4, 6)
TENSORS = {
    "plain": BASE,
    "number": torch.tensor(3.5),
    "empty": torch.zeros(0, 3),
    "transposed": BASE.T,
    "part": BASE[1:3, ::2],
    "same": BASE,
    "learned": torch.ones(2, requires_grad=True),
    "parameter": torch.nn.Parameter(BASE * 2),
    "double": torch.linspace(0, 1, 5, dtype=torch.float64),
    "half": torch.linspace(0, 1, 5, dtype=torch.float16),
    "bfloat16": torch.linspace(-1, 1, 5, dtype=torch.bfloat16),
    "twice": torch.ones(1, 3).expand(2, 3),
}


def test_reads_what_pytorch_wrote(save):
    # More than the values, as every file has.
    file = TorchFile(save({**TENSORS, "steps": torch.arange(30)}))
    for name, tensor in TENSORS.items():
        array = file.read(file.value[name])
        assert array.dtype == "float32"
        np.testing.assert_array_equal(
            array, tensor.detach().float().numpy(), strict=True
        )
    assert (file.functions, file.classes) == ([], [])


def test_an_expanded_tensor(save):
    """160 GB in a file of a few hundred bytes."""
    content = save({"w": torch.ones(1).expand(4_000_000, 10_000)})
    with bounded(num_bytes=2**24):
        file = TorchFile(content)
        with pytest.raises(pickle.UnpicklingError, match="larger than itself"):
            file.read(file.value["w"])


def test_one_storage_for_many_tensors(save):
    """Each as large as the file, and none expanded."""
    weights = torch.ones(100_000)
    content = save([weights[:] for _ in range(50)])
    with (
        bounded(num_bytes=2**22),
        pytest.raises(pickle.UnpicklingError, match="larger than itself"),
    ):
        read_all(content)


class _Call:
    """Pickles as a call of a function with arguments of any kind."""

    def __init__(self, *arguments):
        self.arguments = arguments

    def __reduce__(self):
        return torch._utils._rebuild_tensor_v2, self.arguments


@pytest.mark.parametrize(
    "arguments",
    [
        (1, (4,), (1,)),
        (0, (5,), (1,)),
        (0, (2, 2), (3, 1)),
        (-1, (2,), (1,)),
        (3, (2,), (-1,)),
        (0, (-1,), (1,)),
        (0, (2, 2), (1,)),
        (0, (2.0,), (1,)),
        (0, (True,), (1,)),
        (0, (2**62, 2**62), (0, 0)),
        (0, (1,) * 9, (1,) * 9),
        (0, 2, 1),
        (None, None, None),
    ],
)
def test_tensors_beyond_their_storage(save, arguments):
    storage = torch.ones(4)._typed_storage()
    content = save({"w": _Call(storage, *arguments, False, {})})
    file = TorchFile(content)
    with (
        bounded(),
        pytest.raises(pickle.UnpicklingError, match=r"broken|larger"),
    ):
        file.read(file.value["w"])


def test_a_storage_that_says_it_is_larger():
    file = io.BytesIO()
    torch.save([torch.ones(1000)], file, _use_new_zipfile_serialization=False)
    content = file.getvalue()
    claimed = content.replace(struct.pack("<BH", 0x4D, 1000), b"M\xff\xff")
    assert claimed != content
    with pytest.raises(pickle.UnpicklingError):
        read_all(io.BytesIO(claimed))


@pytest.mark.parametrize("name", ["data.pkl", "data/0"])
def test_a_compressed_archive(name):
    """What is compressed may have any size: PyTorch compresses nothing."""
    file, packed = io.BytesIO(), io.BytesIO()
    torch.save([torch.zeros(1000)], file)
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(packed, "w") as new:
        for entry in old.namelist():
            kind = zipfile.ZIP_STORED
            if entry.endswith(name):
                kind = zipfile.ZIP_DEFLATED
            new.writestr(entry, old.read(entry), compress_type=kind)
    with pytest.raises(pickle.UnpicklingError):
        read_all(packed)


def test_big_endian_values():
    file, packed = io.BytesIO(), io.BytesIO()
    torch.save([torch.ones(3)], file)
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(packed, "w") as new:
        for entry in old.namelist():
            content = old.read(entry)
            if entry.endswith("byteorder"):
                content = b"big"
            new.writestr(entry, content)
    with pytest.raises(pickle.UnpicklingError):
        TorchFile(packed)


@pytest.mark.parametrize("is_zip", [False, True])
def test_a_flipped_bit_of_a_value(is_zip):
    """An archive has checksums, the old stream has none."""
    file = io.BytesIO()
    torch.save([BASE], file, _use_new_zipfile_serialization=is_zip)
    value = struct.pack("<f", 7.0)
    content = file.getvalue().replace(value, struct.pack("<f", 9.0), 1)
    if is_zip:
        with pytest.raises(pickle.UnpicklingError):
            read_all(io.BytesIO(content))
    else:
        [array] = read_all(io.BytesIO(content))
        assert array[1, 1] == 9.0
