import keras
from keras import ops

from tests.layer_test_case import LayerTestCase


class MechanismTestCase(LayerTestCase):
    """Checks that are common to all mechanisms."""

    def check_cached_equals_uncached(
        self, mechanism, queries, keys, values, max_length=7, tolerance=1e-5
    ):
        """Position after position, and all at once under a causal mask."""
        expected, _ = mechanism(queries, keys, values, use_causal_mask=True)
        batch_size, length, num_heads, _ = queries.shape
        # Room for two positions at first, and more when they are there.
        rooms = [2 if index < 2 else max_length for index in range(length)]
        cache = mechanism.init_cache(batch_size, rooms[0])
        for index, room in enumerate(rooms):
            step = slice(index, index + 1)
            cache = mechanism.grow_cache(cache, room)
            cache = mechanism.update_cache(
                cache, keys[:, step], values[:, step], ops.array(index)
            )
            filler, weights = mechanism.attend(
                queries[:, step], cache, index=ops.array(index)
            )
            if mechanism.has_weights:
                self.assertEqual(
                    weights.shape, (batch_size, num_heads, 1, room)
                )
            self.assert_all_close(
                filler, expected[:, step], tolerance, tolerance
            )

    def check_takes_lengths_that_are_not_known(
        self, mechanism, make_heads, dims
    ):
        """Of the queries, keys and values that `make_heads` gives."""
        inputs = [keras.Input((None, mechanism.num_heads, dim)) for dim in dims]
        model = keras.Model(inputs, mechanism(*inputs)[0])
        for length in (2, 6):
            arguments = [make_heads(length, dim) for dim in dims]
            self.assert_all_close(model(arguments), mechanism(*arguments)[0])
