import os
import pathlib
import pickle
import sys
import tempfile
from unittest import mock

import pytest
from absl.testing import parameterized

from tpt_keras.checkpoints.reference_file import read_checkpoint
from tpt_keras.checkpoints.reference_file import write_checkpoint
from tpt_keras.errors import UsageError

torch = pytest.importorskip(
    "torch", reason="the released checkpoints need tpt_keras[torch]"
)

FORMATS = (("zip", True), ("stream", False))


class Malicious:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


class ReferenceFileTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.dir = pathlib.Path(
            self.enterContext(tempfile.TemporaryDirectory())
        )
        self.path = self.dir / "checkpoint.pt"

    def assert_refused(self, pattern):
        with self.assertRaisesRegex(UsageError, pattern) as raised:
            read_checkpoint(self.path)
        self.assertNotIn("\n", str(raised.exception))

    @parameterized.named_parameters(*FORMATS)
    def test_refuses_what_wants_to_run(self, is_zip):
        torch.save(
            {
                "model": {"module.weight": torch.ones(3)},
                "optimizer": Malicious(self.dir / "harm"),
            },
            self.path,
            _use_new_zipfile_serialization=is_zip,
        )
        self.assert_refused(f"more than weights.*{os.mkdir.__module__}.mkdir")
        self.assertFalse((self.dir / "harm").exists())

    @parameterized.named_parameters(*FORMATS)
    def test_refuses_a_class(self, is_zip):
        torch.save(
            torch.nn.Linear(2, 2),
            self.path,
            _use_new_zipfile_serialization=is_zip,
        )
        self.assert_refused("more than weights.*torch.nn.modules.linear.Linear")

    @parameterized.named_parameters(*FORMATS)
    def test_refuses_a_truncated_file(self, is_zip):
        torch.save(
            {"model": {"module.weight": torch.ones(3000)}},
            self.path,
            _use_new_zipfile_serialization=is_zip,
        )
        content = self.path.read_bytes()
        for size in (0, 1, 10, 60, 200, len(content) // 2, len(content) - 3):
            with self.subTest(size=size):
                self.path.write_bytes(content[:size])
                # Refused where the cut leaves half a name.
                self.assert_refused("it is damaged|is refused")

    @parameterized.parameters(
        (b"hello world",),
        (b"PK\x03\x04 and no archive",),
        (pickle.dumps({"model": {}}, protocol=4),),
        (b"\x89PNG\r\n\x1a\n",),
    )
    def test_refuses_other_files(self, content):
        self.path.write_bytes(content)
        self.assert_refused("no PyTorch checkpoint|no checkpoint in the")

    @parameterized.parameters(
        ([1, 2],),
        ({"weights": 1},),
        ({"model": {}},),
        ({"model": [1]},),
    )
    def test_refuses_other_contents(self, content):
        torch.save(content, self.path)
        self.assert_refused('no weights under the key "model"')

    @parameterized.parameters(("text",), (3,))
    def test_refuses_what_is_no_tensor(self, value):
        torch.save({"model": {"module.weight": value}}, self.path)
        self.assert_refused("something other than a tensor.*module.weight")

    def test_refuses_integers(self):
        torch.save({"model": {"w": torch.ones(3, dtype=int)}}, self.path)
        self.assert_refused("something other than a tensor.*'w'")

    def test_missing_file(self):
        self.path = self.dir / "nowhere.pt"
        self.assert_refused("There is no checkpoint file '.*nowhere.pt'")

    def test_missing_torch(self):
        with mock.patch.dict(sys.modules, {"torch": None}):
            self.assert_refused(r"pip install tpt_keras\[torch\]")

    def test_cannot_write(self):
        with self.assertRaisesRegex(UsageError, "Cannot write the checkpoint"):
            write_checkpoint(self.dir / "nowhere" / "checkpoint.pt", {}, ())
