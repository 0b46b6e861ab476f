import math
import os
import pathlib
import pickle
import sys
import tempfile
import warnings
from unittest import mock

import hypothesis
import numpy as np
import pytest
from absl.testing import parameterized
from hypothesis import strategies as st

from tests.bounded import bounded
from tests.checkpoints.hostile import BOMBS
from tests.checkpoints.hostile import Malicious
from tests.checkpoints.hostile import edited
from tpt_keras.checkpoints.reference_file import read_checkpoint
from tpt_keras.checkpoints.reference_file import write_checkpoint
from tpt_keras.errors import UsageError

torch = pytest.importorskip(
    "torch", reason="the released checkpoints need tpt_keras[torch]"
)

FORMATS = (("zip", True), ("stream", False))


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

    @parameterized.parameters(
        ("LongStorage", lambda: torch.ones(3, dtype=int)),
        ("ComplexFloatStorage", lambda: torch.ones(3, dtype=torch.cfloat)),
        ("a sparse tensor", lambda: torch.eye(3).to_sparse()),
        ("a sparse tensor", lambda: torch.eye(3).to_sparse_csr()),
        ("a meta tensor", lambda: torch.ones(3, device="meta")),
        (
            "a quantized tensor",
            lambda: torch.quantize_per_tensor(
                torch.ones(3), 0.1, 0, torch.qint8
            ),
        ),
        ("tensor_v3", lambda: torch.ones(3).to(torch.float8_e4m3fn)),
    )
    def test_refuses_other_tensors_by_name(self, name, make):
        with warnings.catch_warnings():
            # Some are said to be unfinished, or on their way out.
            warnings.simplefilter("ignore")
            torch.save({"model": {"w": make()}}, self.path)
        self.assert_refused(f"something other than a tensor.*'w': .*{name}")

    @parameterized.parameters(math.nan, math.inf, -math.inf, 1e300)
    def test_refuses_what_is_no_number(self, value):
        tensor = torch.tensor([0.0, value, 1.0], dtype=torch.float64)
        torch.save({"model": {"good": torch.ones(2), "bad": tensor}}, self.path)
        self.assert_refused("NaN or infinite under the name 'bad'")

    @parameterized.parameters(3, None, "", "two\nlines", "a" * 201)
    def test_refuses_a_name_that_is_none(self, name):
        torch.save({"model": {name: torch.ones(2)}}, self.path)
        self.assert_refused("a weight whose name is none|no PyTorch check")

    def test_a_name_that_is_hashed_for_ever(self):
        for bomb in BOMBS.values():
            self.path.write_bytes(bomb)
            with bounded():
                self.assert_refused("checkpoint")

    def test_missing_file(self):
        self.path = self.dir / "nowhere.pt"
        self.assert_refused("There is no checkpoint file '.*nowhere.pt'")

    def test_missing_torch(self):
        """Which writing needs, and reading does not."""
        torch.save({"model": {"w": torch.ones(3)}}, self.path)
        with mock.patch.dict(sys.modules, {"torch": None}):
            read_checkpoint(self.path)
            with self.assertRaisesRegex(
                UsageError, r"pip install tpt_keras\[torch\]"
            ):
                write_checkpoint(self.path, {}, ())

    @hypothesis.given(st.data())
    def test_a_damaged_file_is_read_rightly_or_refused(self, data):
        torch.save(
            {"model": {"a": torch.ones(3), "b": torch.eye(2)}},
            self.path,
            _use_new_zipfile_serialization=data.draw(st.booleans()),
        )
        self.path.write_bytes(data.draw(edited(self.path.read_bytes())))
        with bounded():
            try:
                weights, symbols = read_checkpoint(self.path)
            except UsageError as error:
                message = str(error)
                self.assertNotIn("\n", message)
            else:
                self.assertIsNone(symbols)
                for name, array in weights.items():
                    self.assertIsInstance(name, str)
                    self.assertEqual(array.dtype, "float32")
                    self.assertTrue(np.isfinite(array).all())

    def test_a_full_disk(self):
        """As a limit on the size of files: part of it is written."""
        resource = pytest.importorskip("resource")
        self.path.write_bytes(b"before")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            with self.assertRaisesRegex(
                UsageError, "Cannot write the checkpoint '.*checkpoint.pt': "
            ) as raised:
                write_checkpoint(self.path, {"w": np.ones(3000, "f4")}, ())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        self.assertNotIn("\n", str(raised.exception))
        self.assertEqual(self.path.read_bytes(), b"before")
        self.assertEqual(list(self.dir.iterdir()), [self.path])

    def test_cannot_write(self):
        with self.assertRaisesRegex(UsageError, "Cannot write the checkpoint"):
            write_checkpoint(self.dir / "nowhere" / "checkpoint.pt", {}, ())
