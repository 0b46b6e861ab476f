import numpy as np
import pytest
import tensorflow as tf

from tpt_keras.serving.export.length_groups import GROUP_SIZE
from tpt_keras.serving.export.length_groups import encode_in_groups


@pytest.mark.parametrize(
    "num_rows", [0, 1, GROUP_SIZE, GROUP_SIZE + 1, 3 * GROUP_SIZE - 1]
)
def test_equals_encoding_all_at_once_but_for_the_padding(num_rows):
    lengths = np.sort(np.random.default_rng(0).integers(1, 30, num_rows))
    longest = max(lengths, default=0)
    is_token = np.arange(longest) < lengths[:, np.newaxis]
    token_ids = np.where(is_token, np.arange(1, longest + 1), 0)

    def encode(token_ids):
        shape = tf.shape(token_ids)
        width = tf.fill(shape[:1], shape[1])  # what a group was padded to
        states = tf.stack([token_ids, -token_ids], -1)
        return {"width": width, "states": (states, token_ids > 0)}

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, None), tf.int32),
            tf.TensorSpec((None,), tf.int32),
        ]
    )
    def encode_all(token_ids, lengths):
        encoded = encode_in_groups(encode, token_ids, lengths)
        assert encoded["states"][0].shape.as_list() == [None, None, 2]
        return encoded

    encoded = encode_all(token_ids.astype("int32"), lengths.astype("int32"))
    states, mask = encoded["states"]
    np.testing.assert_array_equal(states[..., 0], token_ids)
    np.testing.assert_array_equal(states[..., 1], -token_ids)
    np.testing.assert_array_equal(mask, is_token)
    groups = [
        lengths[start : start + GROUP_SIZE]
        for start in range(0, num_rows, GROUP_SIZE)
    ]
    expected = [group.max() for group in groups for _ in group]
    np.testing.assert_array_equal(encoded["width"], expected)


def test_an_axis_of_something_else_is_refused():
    def encode(token_ids):
        return tf.zeros([tf.shape(token_ids)[0], tf.size(token_ids)])

    encode_all = tf.function(
        lambda ids, lengths: encode_in_groups(encode, ids, lengths)
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="Axis 1 of what"):
        encode_all(np.ones((2, 3), np.int32), np.array([3, 3], np.int32))
