import os
import pathlib
import pickle
import tempfile
import zipfile
from collections import OrderedDict

import pytest
from absl.testing import parameterized

from tests.checkpoints.released_vocabulary import CHARACTERS
from tests.checkpoints.released_vocabulary import SYMBOLS
from tests.checkpoints.released_vocabulary import torchtext_vocabulary
from tpt_keras.checkpoints import read_vocabulary
from tpt_keras.errors import UsageError

EXPECTED = ("<unknown>", "<pad>", "<start>", "<end>", *CHARACTERS)


class Malicious:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


class ReferenceVocabularyTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.dir = pathlib.Path(
            self.enterContext(tempfile.TemporaryDirectory())
        )
        self.path = self.dir / "vocab.pt"

    def write(self, container, symbols=SYMBOLS, **attributes):
        """Writes the released vocabulary in one of its containers."""
        with torchtext_vocabulary(symbols, **attributes) as vocabulary:
            if container == "pickle":
                self.path.write_bytes(pickle.dumps(vocabulary, protocol=2))
                return
            torch = pytest.importorskip(
                "torch", reason="PyTorch's containers need tpt_keras[torch]"
            )
            torch.save(
                vocabulary,
                self.path,
                _use_new_zipfile_serialization=container == "zip",
            )

    def assert_refused(self, pattern, source=None):
        with self.assertRaisesRegex(UsageError, pattern) as raised:
            read_vocabulary(source or self.path)
        self.assertNotIn("\n", str(raised.exception))

    @parameterized.parameters("stream", "zip", "pickle")
    def test_reads_the_released_file(self, container):
        self.write(container)
        self.assertEqual(read_vocabulary(self.path), EXPECTED)
        self.assertEqual(read_vocabulary(str(self.path)), EXPECTED)

    @parameterized.parameters(2, 3, 4, 5)
    def test_reads_every_pickle_protocol(self, protocol):
        with torchtext_vocabulary(extra=OrderedDict(a=1)) as vocabulary:
            self.path.write_bytes(pickle.dumps(vocabulary, protocol))
        self.assertEqual(read_vocabulary(self.path), EXPECTED)

    @parameterized.parameters("stream", "zip", "pickle")
    def test_runs_nothing(self, container):
        self.write(container, harm=Malicious(self.dir / "harm"))
        self.assert_refused(
            f"refused: it holds more than symbols and wants to call "
            f"{os.mkdir.__module__}.mkdir"
        )
        self.assertFalse((self.dir / "harm").exists())

    def test_runs_no_default_factory(self):
        # `defaultdict(os.getpid)` names a function for later.
        with torchtext_vocabulary() as vocabulary:
            vocabulary.stoi.default_factory = os.getpid
            self.path.write_bytes(pickle.dumps(vocabulary, protocol=2))
        self.assertEqual(read_vocabulary(self.path), EXPECTED)

    @parameterized.parameters(
        (b"\x80\x02",),
        (b"\x80\x02}q\x00.",),
        (pickle.dumps(list(SYMBOLS)),),
        (b"\x80\x02\xff\xff",),
    )
    def test_refuses_other_pickles(self, content):
        self.path.write_bytes(content)
        self.assert_refused("holds no vocabulary")

    def test_refuses_a_truncated_file(self):
        self.write("pickle")
        content = self.path.read_bytes()
        for size in range(1, len(content) - 1, 97):
            self.path.write_bytes(content[:size])
            self.assert_refused("holds no vocabulary")

    def test_refuses_another_archive(self):
        with zipfile.ZipFile(self.path, "w") as archive:
            archive.writestr("archive/data", "text")
        self.assert_refused("holds no vocabulary")

    @parameterized.parameters(
        CHARACTERS, CHARACTERS + "\n", CHARACTERS + "\r\n"
    )
    def test_reads_characters_as_text(self, text):
        self.path.write_bytes(text.encode())
        self.assertEqual(read_vocabulary(self.path), EXPECTED)

    @parameterized.parameters(b"", b"\n", b"abc\ndef\n", b"a\tb", b"\xff\xfe")
    def test_refuses_other_text(self, content):
        self.path.write_bytes(content)
        self.assert_refused("is no vocabulary")

    def test_reads_a_sequence_of_symbols(self):
        self.assertEqual(read_vocabulary(SYMBOLS), EXPECTED)
        self.assertEqual(read_vocabulary(EXPECTED), EXPECTED)

    @parameterized.parameters(
        (("<pad>", "<sos>", "<eos>", "a", "a"), "'a' twice"),
        (("<pad>", "<sos>", "<eos>", "ab"), "'ab', which is neither"),
        (("<pad>", "<sos>", "<eos>", 3), "'3', which is neither"),
        (("<pad>", "<sos>", "<eos>", ["a"]), "which is neither"),
        (("<pad>", "<sos>", "a"), "lacks the symbol <end>"),
    )
    def test_refuses_symbols_that_make_no_vocabulary(self, symbols, pattern):
        self.assert_refused(pattern, symbols)

    def test_missing_file(self):
        self.assert_refused("no vocabulary file '.*vocab.pt'")

    def test_large_file(self):
        self.path.write_bytes(b"a" * (2**20 + 1))
        self.assert_refused("too large to be a vocabulary")
