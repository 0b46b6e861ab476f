from keras import ops
from keras import tree

# Room for tokens in the KV cache at first; it doubles whenever it is full.
FIRST_ROOM = 8
# Finished sequences leave the batch when no more than this share is left.
# Gathering the others costs about as much as a few steps.
UNFINISHED_SHARE = 0.75


class EarlyExit:
    """A while loop that drops finished sequences from the batch.

    It also grows the KV cache on demand. It takes the place of
    `keras.ops.while_loop` in `Sampler.decode` and gives the same results. It
    needs a backend whose loops may change shapes, which JAX's may not.

    Args:
        grow_cache: Function of a cache and a number of tokens that returns a
            cache with that much room: a model's `grow_cache`.
        num_sequences: Number of sequences of a question. They leave together.
    """

    def __init__(self, grow_cache, num_sequences=1):
        self._grow_cache = grow_cache
        self._num_sequences = num_sequences

    def __call__(self, cond, body, loop_vars, maximum_iterations):
        """Runs the loop, and returns the last state without the cache.

        The arguments are those of `keras.ops.while_loop`. `loop_vars` is a
        tuple of the state, a dict, whose cache may have room for one token.
        """
        (state,) = loop_vars
        results = {
            name: values
            for name, values in state.items()
            if name not in ("index", "cache", "sampler")
        }
        rows = ops.arange(ops.shape(state["is_ended"])[0], dtype="int32")
        # Even at the start: a TensorFlow loop keeps the shapes it knows, and
        # forgets them here.
        state, rows = self._unfinished_only(state, rows)
        room = _untraced(min(FIRST_ROOM, maximum_iterations), state["cache"])
        state = self._grown(state, room)

        def has_steps(state, room, rows, results):
            return ops.logical_and(
                cond(state), state["index"] < maximum_iterations
            )

        def take_steps(state, room, rows, results):
            def keeps_shapes(state):
                is_full_batch = ops.logical_and(
                    cond(state), self._most_are_unfinished(state)
                )
                return ops.logical_and(is_full_batch, state["index"] < room)

            (state,) = ops.while_loop(keeps_shapes, body, (state,))
            results = {
                name: ops.scatter_update(
                    values, ops.expand_dims(rows, -1), state[name]
                )
                for name, values in results.items()
            }
            state, rows = self._unfinished_only(state, rows)
            room = ops.where(
                state["index"] < room,
                room,
                ops.minimum(2 * room, maximum_iterations),
            )
            return self._grown(state, room), room, rows, results

        *_, results = ops.while_loop(
            has_steps, take_steps, (state, room, rows, results)
        )
        return (results,)

    def _grown(self, state, room):
        return {**state, "cache": self._grow_cache(state["cache"], room)}

    def _unfinished(self, state):
        is_ended = ops.reshape(state["is_ended"], (-1, self._num_sequences))
        return ops.logical_not(ops.all(is_ended, axis=-1))

    def _most_are_unfinished(self, state):
        unfinished = ops.cast(self._unfinished(state), "float32")
        return ops.mean(unfinished) > UNFINISHED_SHARE

    def _unfinished_only(self, state, rows):
        unfinished = ops.repeat(self._unfinished(state), self._num_sequences)
        (kept,) = ops.nonzero(unfinished)
        return tree.map_structure(
            lambda values: (
                ops.take(values, kept, axis=0) if len(values.shape) else values
            ),
            (state, rows),
        )


def _untraced(number, cache):
    """Hides a number's value from TensorFlow, which folds constants."""
    for values in tree.flatten(cache):
        first = ops.cast(ops.reshape(values, (-1,))[:1], "int32")
        number = number + 0 * ops.sum(first)
    return number
