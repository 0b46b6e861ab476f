import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refused
from tpt_keras.errors import UsageError
from tpt_keras.language_model.training import TextSegments
from tpt_keras.language_model.training import text_part
from tpt_keras.language_model.training import text_vocabulary


@given(
    st.binary(min_size=41, max_size=99), st.integers(1, 5), st.integers(1, 8)
)
def test_streams_continue_around_the_text(text, batch_size, length):
    vocabulary = text_vocabulary(text)
    segments = TextSegments(text, vocabulary, batch_size, length)
    epochs = 3
    read, following = (
        np.concatenate(ids, axis=1)
        for ids in zip(*segments.iterate(num_epochs=epochs))
    )
    assert read.dtype == np.int32
    assert read.shape == (
        batch_size,
        epochs * segments.steps_per_epoch * length,
    )
    size = (len(text) - 1) // batch_size
    circle = text[: batch_size * size]
    for stream in range(batch_size):
        places = [
            (stream * size + place) % len(circle)
            for place in range(read.shape[1])
        ]
        assert bytes(vocabulary[i] for i in read[stream]) == bytes(
            circle[place] for place in places
        )
        assert bytes(vocabulary[i] for i in following[stream]) == bytes(
            text[place + 1] for place in places
        )


def test_any_batch_can_be_the_first():
    segments = TextSegments(b"abcabcabcabcabc", b"abc", 2, 3)
    batches = segments.iterate(num_epochs=3)
    for step, batch in enumerate(batches):
        np.testing.assert_array_equal(next(segments.iterate(step)), batch)
    assert step == 3 * segments.steps_per_epoch - 1
    assert len(segments) == 2 * segments.steps_per_epoch


def test_text_can_be_mapped_to_memory(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"\xffba\x00" * 5)
    text = np.memmap(path, np.uint8, mode="r")
    assert text_vocabulary(text) == (0, 97, 98, 255)
    [batch] = TextSegments(text, (0, 97, 98, 255), 1, 19).iterate(num_epochs=1)
    assert batch[0][0, :4].tolist() == [3, 2, 1, 0]
    assert batch[1][0, :4].tolist() == [2, 1, 0, 3]


@pytest.mark.parametrize(
    ("text", "vocabulary", "field"),
    [
        (b"abcabc", b"abc", "batch_size"),
        (b"", b"abc", "batch_size"),
        (b"abcdeabcde", b"abe", "text_file"),
    ],
)
def test_invalid_text_is_refused(text, vocabulary, field):
    with refused(field):
        TextSegments(text, vocabulary, 3, 2)


def test_only_one_device_reads():
    segments = TextSegments(b"abcabcabc", b"abc", 2, 2)
    with refused("distribution"):
        next(segments.iterate(shards=range(2), num_shards=2))


def test_parts_follow_one_another():
    text = np.arange(200)
    parts = [text_part(text, name) for name in ("train", "validation", "test")]
    assert [len(part) for part in parts] == [180, 10, 10]
    np.testing.assert_array_equal(np.concatenate(parts), text)
    with pytest.raises(UsageError):
        text_part(text, "interpolate")
