import collections
import contextlib
import io
import os
import pickle
import time

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from tests.bounded import bounded
from tests.checkpoints.hostile import BOMBS
from tests.checkpoints.hostile import HARMLESS_BOMBS
from tests.checkpoints.hostile import edited
from tpt_keras.checkpoints.inert_pickle import MAX_BYTES
from tpt_keras.checkpoints.inert_pickle import Inert
from tpt_keras.checkpoints.inert_pickle import read_pickle

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda values: (
        st.lists(values, max_size=4)
        | st.dictionaries(st.text(max_size=3), values, max_size=4)
        | st.lists(values, max_size=4).map(tuple)
    ),
    max_leaves=20,
)


def read(content):
    return read_pickle(io.BytesIO(content))


@given(PLAIN, st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_reads_plain_values_as_python_does(value, protocol):
    content = read(pickle.dumps(value, protocol))
    assert content == (value, [], [])
    assert type(content.value) is type(value)


def test_what_is_shared_is_shared():
    symbols = ["a", "b"]
    first, second = read(pickle.dumps([symbols, symbols])).value
    assert first is second


def test_one_pickle_after_another():
    stream = io.BytesIO(pickle.dumps(1) + pickle.dumps("two") + b"rest")
    assert [read_pickle(stream).value for _ in range(2)] == [1, "two"]
    assert stream.read() == b"rest"


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_calls_are_noted_and_containers_kept(protocol):
    value = {
        "counter": collections.Counter("aab"),
        "ordered": collections.OrderedDict(a=1),
        "default": collections.defaultdict(os.getpid, b=2),
        "range": range(3),
    }
    content = read(pickle.dumps(value, protocol))
    assert content.value["ordered"] == {"a": 1}
    assert content.value["default"] == {"b": 2}
    assert type(content.value["counter"]) is dict
    made = content.value["range"]
    assert isinstance(made, Inert)
    assert (made.name.rpartition(".")[2], made.arguments) == (
        "range" if protocol > 2 else "xrange",
        (0, 3, 1),
    )
    assert content.functions == [made.name]
    assert content.classes == []


def test_the_process_stays_as_it_is():
    """Attributes that are set on a class's name are set on no class."""
    for state in (
        b"N}X\x04\x00\x00\x00harmK\x01s\x86",
        b"}X\x04\x00\x00\x00harmK\x01s",
    ):
        value = read(b"\x80\x02ccollections\nCounter\n" + state + b"b.").value
        assert value == "collections.Counter"
        assert not hasattr(collections.Counter, "harm")


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(name):
    with bounded():
        if name in HARMLESS_BOMBS:
            # Small here, and endless for who walks through it.
            assert len(read(BOMBS[name]).value) in (0, 16)
        else:
            with pytest.raises(pickle.UnpicklingError):
                read(BOMBS[name])


def test_as_many_instructions_as_there_may_be():
    content = b"\x80\x04" + b"}\x94" * (MAX_BYTES // 2)
    start = time.process_time()
    with pytest.raises(pickle.UnpicklingError):
        read(content)
    assert time.process_time() - start < 20


SAMPLE = pickle.dumps(
    {
        "itos": list("abc") * 2,
        "stoi": collections.Counter("abc"),
        "other": (1, 2.5, None, [True], {"x": b"bytes"}, range(3)),
    },
    protocol=2,
)


@settings(max_examples=500)
@given(st.binary(max_size=64) | edited(SAMPLE))
def test_whatever_it_reads(content):
    with bounded(), contextlib.suppress(pickle.UnpicklingError):
        read(content)
