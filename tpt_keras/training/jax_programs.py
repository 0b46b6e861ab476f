import concurrent.futures
import time

import jax

# Between lines that say how far it is.
_SECONDS_PER_LINE = 5


class JaxPrograms:
    """A step and its programs, of which JAX needs one for every shape.

    JAX compiles a program when it is called for, and says nothing. This does
    when the first is called for, compiles what will be at the same time, side
    by side, and says so. What is compiled JAX finds, as long as it lives and
    in its persistent cache.

    Args:
        step: A function of a state and a batch, from `jax.jit`.
        batches_to_come: Function that returns batches, of arrays or of
            `jax.ShapeDtypeStruct`, one of every shape that is known to come.
    """

    def __init__(self, step, batches_to_come):
        self._step = step
        self._batches_to_come = batches_to_come
        self._compiled = set()

    def __call__(self, state, batch):
        if _shapes(batch) not in self._compiled:
            self._compile(state, [batch, *self._batches_to_come()])
        return self._step(state, batch)

    def _compile(self, state, batches):
        batches = {_shapes(batch): batch for batch in batches}
        for shapes in self._compiled:
            batches.pop(shapes, None)
        start = line = time.monotonic()
        print(
            f"Compiling {len(batches)} program{'s'[: len(batches) > 1]} for "
            f"batches of {', '.join(map(_text, batches))}."
        )
        with concurrent.futures.ThreadPoolExecutor(len(batches)) as threads:
            try:
                # What is Python's of it cannot be side by side.
                compiling = [
                    threads.submit(self._step.lower(state, batch).compile)
                    for batch in batches.values()
                ]
                done = concurrent.futures.as_completed(compiling)
                for number, program in enumerate(done, start=1):
                    program.result()
                    now = time.monotonic()
                    if number == len(batches) or now - line > _SECONDS_PER_LINE:
                        line = now
                        print(
                            f"{number} of {len(batches)} are ready after "
                            f"{now - start:.0f} s."
                        )
            finally:
                threads.shutdown(wait=False, cancel_futures=True)
        self._compiled |= batches.keys()


def _shapes(batch):
    return tuple(array.shape for array in jax.tree.leaves(batch))


def _text(shapes):
    """The rows, and the different lengths of them: 64 x 40 + 8."""
    lengths = {length for shape in shapes for length in shape[1:]}
    longest_first = map(str, sorted(lengths, reverse=True))
    return f"{shapes[0][0]} x {' + '.join(longest_first)}"
