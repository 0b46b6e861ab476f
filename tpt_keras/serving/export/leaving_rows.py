import tensorflow as tf

# Tokens that the caches have room for at first; then twice as many, and again.
FIRST_ROOM = 8
# Rows leave when no more than this share of them goes on: moving the others
# together costs about as much as a few steps.
SHARE_THAT_GOES_ON = 0.75


class LeavingRows:
    """A loop of a search, for `search_from`, that rows leave when they end.

    As `tf.while_loop`, but for what nobody reads: the steps of rows that have
    ended, and room in the caches for tokens that are not there yet.

    Args:
        grow_cache: A model's `grow_cache`.
        beam_width: Number of beams of a question, which leave together.
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
        # A tensor, or the caches would be known to stay as long as that.
        room = tf.compat.v1.placeholder_with_default(
            min(FIRST_ROOM, maximum_iterations), ()
        )
        state = self._grown(state, room)

        def has_steps(state, room, rows, results):
            return is_going_on(state) & (state["index"] < maximum_iterations)

        def take_steps(state, room, rows, results):
            (state,) = tf.while_loop(
                lambda state: (
                    is_going_on(state)
                    & (state["index"] < room)
                    & self._most_go_on(state)
                ),
                advance,
                (state,),
            )
            results = {
                name: tf.tensor_scatter_nd_update(
                    values, rows[:, tf.newaxis], state[name]
                )
                for name, values in results.items()
            }
            kept = self._rows_that_go_on(state)
            state, rows = tf.nest.map_structure(
                lambda values: (
                    tf.gather(values, kept) if values.shape.rank else values
                ),
                (state, rows),
            )
            room = tf.where(
                state["index"] < room,
                room,
                tf.minimum(2 * room, maximum_iterations),
            )
            return self._grown(state, room), room, rows, results

        results = {
            name: values
            for name, values in state.items()
            if name not in ("index", "cache")
        }
        rows = tf.range(tf.size(state["is_ended"]))
        *_, results = tf.while_loop(
            has_steps, take_steps, (state, room, rows, results)
        )
        return (results,)

    def _grown(self, state, room):
        return {**state, "cache": self._grow_cache(state["cache"], room)}

    def _questions_that_go_on(self, state):
        is_ended = tf.reshape(state["is_ended"], (-1, self._beam_width))
        return tf.logical_not(tf.reduce_all(is_ended, axis=-1))

    def _most_go_on(self, state):
        going_on = self._questions_that_go_on(state)
        share = tf.reduce_mean(tf.cast(going_on, "float32"))
        return share > SHARE_THAT_GOES_ON

    def _rows_that_go_on(self, state):
        going_on = self._questions_that_go_on(state)
        return tf.where(tf.repeat(going_on, self._beam_width))[:, 0]
