from keras import ops
from keras import tree

# Tokens that the caches have room for at first; then twice as many, and again.
FIRST_ROOM = 8
# Rows leave when no more than this share of them goes on: moving the others
# together costs about as much as a few steps.
SHARE_THAT_GOES_ON = 0.75


class LeavingRows:
    """A loop of a search, for `search_from`, that rows leave when they end.

    As `keras.ops.while_loop`, but for what nobody reads: the steps of rows
    that have ended, and room in the caches for tokens that are not there yet.
    It finds the same. For TensorFlow, for JAX's loops keep every size.

    Args:
        grow_cache: A model's `grow_cache`.
        beam_width: Number of beams of a question, which leave together.

    Example:

    ```python
    found = model.search_from(
        model.init_cache(token_ids, max_length=1),  # the loop makes more room
        batch_size=len(token_ids),
        max_length=30,
        while_loop=LeavingRows(model.grow_cache),
    )
    ```
    """

    def __init__(self, grow_cache, beam_width=1):
        self._grow_cache = grow_cache
        self._beam_width = beam_width

    def __call__(self, is_going_on, advance, loop_vars, maximum_iterations):
        """Runs a search's steps.

        Args:
            is_going_on: Function of the state, whether any row goes on.
            advance: Function of the state to a tuple of the next.
            loop_vars: Tuple of the state alone.
            maximum_iterations: Most steps, an integer.

        Returns:
            Tuple of the last state, whose rows are all there again, without
            a cache.
        """
        (state,) = loop_vars
        results = {
            name: values
            for name, values in state.items()
            if name not in ("index", "cache")
        }
        rows = ops.arange(ops.shape(state["is_ended"])[0], dtype="int32")
        # Of sizes that are not known: a loop is held to those that are.
        state, rows = self._those_that_go_on(state, rows)
        room = _unknown(min(FIRST_ROOM, maximum_iterations), state["cache"])
        state = self._grown(state, room)

        def has_steps(state, room, rows, results):
            return ops.logical_and(
                is_going_on(state), state["index"] < maximum_iterations
            )

        def take_steps(state, room, rows, results):
            def stays(state):
                most_go_on = ops.logical_and(
                    is_going_on(state), self._most_go_on(state)
                )
                return ops.logical_and(most_go_on, state["index"] < room)

            (state,) = ops.while_loop(stays, advance, (state,))
            results = {
                name: ops.scatter_update(
                    values, ops.expand_dims(rows, -1), state[name]
                )
                for name, values in results.items()
            }
            state, rows = self._those_that_go_on(state, rows)
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

    def _questions_that_go_on(self, state):
        is_ended = ops.reshape(state["is_ended"], (-1, self._beam_width))
        return ops.logical_not(ops.all(is_ended, axis=-1))

    def _most_go_on(self, state):
        going_on = self._questions_that_go_on(state)
        share = ops.mean(ops.cast(going_on, "float32"))
        return share > SHARE_THAT_GOES_ON

    def _those_that_go_on(self, state, rows):
        going_on = self._questions_that_go_on(state)
        (kept,) = ops.nonzero(ops.repeat(going_on, self._beam_width))
        return tree.map_structure(
            lambda values: (
                ops.take(values, kept, axis=0) if len(values.shape) else values
            ),
            (state, rows),
        )


def _unknown(number, cache):
    """The number as a tensor that TensorFlow does not know while it traces.

    It works out whatever does not depend on an input; a cache does.
    """
    for values in tree.flatten(cache):
        first = ops.cast(ops.reshape(values, (-1,))[:1], "int32")
        number = number + 0 * ops.sum(first)
    return number
