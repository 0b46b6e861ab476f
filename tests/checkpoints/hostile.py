"""Files that want more than to be read."""

import os

from hypothesis import strategies as st

# A few hundred bytes each, and more memory and time than there are for a
# reader that does what they say.
BOMBS = {
    # A list of ten times a list of ten times a list ...
    "lists": b"\x80\x02(]q\x00"
    + (b"](" + b"h\x00" * 10 + b"eq\x00") * 15
    + b"t.",
    # A key that takes 2**60 steps to hash.
    "keys": b"\x80\x02}()q\x00" + b"h\x00h\x00\x86q\x00" * 60 + b"Nu.",
    # A memo of 2**31 places.
    "memo": b"\x80\x02]r\xff\xff\xff\x7f.",
    # An array of 2**62 bytes that do not follow.
    "array": b"\x80\x05\x96\x00\x00\x00\x00\x00\x00\x00\x40.",
    # A name of half a million characters, many times over.
    "names": b"\x80\x04(X\x00\x00\x08\x00"
    + b"a" * 2**19
    + b"\x94"
    + b"h\x00h\x00\x93" * 50_000
    + b"t.",
    # A number of a million digits as key, many times over.
    "numbers": b"\x80\x02}(\x8b\x00\x00\x08\x00"
    + b"\x7f" * 2**19
    + b"q\x00N"
    + b"h\x00N" * 50_000
    + b"u.",
}
HARMLESS_BOMBS = ("lists", "memo")


def _edit(content, edits):
    content = bytearray(content)
    for place, length, new in edits:
        start = int(place * len(content))
        content[start : start + length] = new
    return bytes(content)


def edited(content):
    """Strategy for a file that was damaged in a few places, or cut short."""
    edits = st.lists(
        st.tuples(
            st.floats(0, 1),
            st.one_of(st.integers(0, 4), st.just(len(content))),
            st.one_of(
                st.binary(max_size=4),
                st.sampled_from(
                    [opcode.encode("latin-1") for opcode in OPCODES]
                ),
                st.sampled_from(list(BOMBS.values())[:4]),
            ),
        ),
        min_size=1,
        max_size=3,
    )
    return edits.map(lambda edits: _edit(content, edits))


OPCODES = (
    "(.0123IJKMNQRbcdegijlopqrstu)]}aXVLFGBCTU\x80\x81\x85\x86\x87\x88\x89"
)


class Malicious:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)
