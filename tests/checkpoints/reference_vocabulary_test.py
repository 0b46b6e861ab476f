import os
import pathlib
import pickle
import tempfile
import zipfile
from collections import Counter
from collections import OrderedDict

import hypothesis
import pytest
from absl.testing import parameterized
from hypothesis import strategies as st

from tests.bounded import bounded
from tests.checkpoints.hostile import BOMBS
from tests.checkpoints.hostile import Malicious
from tests.checkpoints.hostile import edited
from tests.checkpoints.released_vocabulary import CHARACTERS
from tests.checkpoints.released_vocabulary import SYMBOLS
from tests.checkpoints.released_vocabulary import torchtext_vocabulary
from tpt_keras.checkpoints import read_vocabulary
from tpt_keras.errors import UsageError

EXPECTED = ("<unknown>", "<pad>", "<start>", "<end>", *CHARACTERS)


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

    def test_changes_nothing_in_this_process(self):
        """A container that is given attributes is not Python's own."""
        with torchtext_vocabulary(["Z"]) as vocabulary:
            content = pickle.dumps(vocabulary, protocol=2)
        harm = b"ccollections\nCounter\nN}X\x04\0\0\0harmK\x01s\x86b"
        # Beneath the vocabulary, which alone would be refused; and in it.
        self.path.write_bytes(b"\x80\x02" + harm + b".")
        self.assert_refused("holds no vocabulary")
        symbol = b"X\x01\0\0\0Z"
        self.assertIn(symbol, content)
        self.path.write_bytes(content.replace(symbol, harm, 1))
        self.assert_refused("holds no vocabulary|which is neither")
        self.assertFalse(hasattr(Counter, "harm"))

    @parameterized.parameters(*BOMBS)
    def test_refuses_what_grows(self, name):
        with torchtext_vocabulary(["placeholder"]) as vocabulary:
            content = pickle.dumps(vocabulary, protocol=2)
        bomb = BOMBS[name].removeprefix(b"\x80\x02").removeprefix(b"\x80\x04")
        symbol = b"X\x0b\0\0\0placeholder"
        self.assertIn(symbol, content)
        for whole in (BOMBS[name], content.replace(symbol, bomb[:-1], 1)):
            self.path.write_bytes(whole)
            with bounded():
                self.assert_refused("holds no vocabulary|which is neither")

    def test_many_symbols(self):
        # As many as a file of the largest size can hold.
        symbols = (*SYMBOLS, *map(chr, range(0xE000, 0xE000 + 100_000)))
        with bounded():
            self.assertLen(read_vocabulary(symbols), 100_000 + len(SYMBOLS))

    @hypothesis.given(st.data())
    def test_a_damaged_file_is_read_rightly_or_refused(self, data):
        with torchtext_vocabulary(SYMBOLS[:8]) as vocabulary:
            content = pickle.dumps(vocabulary, protocol=2)
        self.path.write_bytes(data.draw(edited(content)))
        with bounded():
            try:
                symbols = read_vocabulary(self.path)
            except UsageError as error:
                message = str(error)
                self.assertNotIn("\n", message)
            else:
                self.assertEqual(symbols, read_vocabulary(symbols))
        self.assertFalse(hasattr(Counter, "itos"))

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
        (("<pad>", "<sos>", "<eos>", 3), "type int, which is neither"),
        (("<pad>", "<sos>", "<eos>", ["a"]), "which is neither"),
        (("<pad>", "<sos>", "<eos>", "\ud800"), r"'\\ud800', which is"),
        (("<pad>", "<sos>", "a"), "lacks the symbol <end>"),
    )
    def test_refuses_symbols_that_make_no_vocabulary(self, symbols, pattern):
        self.assert_refused(pattern, symbols)

    def test_missing_file(self):
        self.assert_refused("no vocabulary file '.*vocab.pt'")

    def test_large_file(self):
        self.path.write_bytes(b"a" * (2**20 + 1))
        self.assert_refused("too large to be a vocabulary")
