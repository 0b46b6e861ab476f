"""Ahead-of-time compilation of JAX programs, and their persistent cache."""

import concurrent.futures
import contextlib
import logging
import os
import pathlib
import time

import filelock
import jax

_SECONDS_PER_LINE = 5
# The least recently used programs are removed when there are more.
MAX_CACHE_BYTES = 4 * 2**30

_log = logging.getLogger(__name__)


class CompiledStep:
    """Ahead-of-time compilation: a step with a program for each batch shape.

    The first call compiles the step for all expected shapes, in parallel, and
    logs the progress. Another shape is compiled when it comes.

    Args:
        step: Function of a state and a batch that returns logs and a state.
        strategy: A `keras.distribution.DataParallel` or `None`.
        expected: Function that returns the expected batches, as trees of
            `jax.ShapeDtypeStruct`.
    """

    def __init__(self, step, strategy, expected):
        self._step = step
        self._strategy = strategy
        self._expected = expected
        self._program = None
        self._compiled = set()

    def __call__(self, state, batch):
        if self._program is None:
            self._program = self._jit(state)
        if _shapes(batch) not in self._compiled:
            self._compile(state, [batch, *self._expected()])
        return self._program(state, batch)

    def _jit(self, state):
        shardings = None
        if self._strategy is not None:
            # A variable stays where it is.
            state = jax.tree.map(lambda value: value.sharding, state)
            shardings = (None, state)
        return jax.jit(self._step, donate_argnums=0, out_shardings=shardings)

    def _compile(self, state, batches):
        batches = {_shapes(batch): batch for batch in batches}
        for shapes in self._compiled:
            batches.pop(shapes, None)
        start = line = time.monotonic()
        _log.info(
            "Compiling %d program%s for batches of %s.",
            len(batches),
            "s"[: len(batches) > 1],
            ", ".join(map(_text, batches)),
        )
        with concurrent.futures.ThreadPoolExecutor(len(batches)) as threads:
            try:
                # Lowering is Python and cannot run in parallel.
                compiling = [
                    threads.submit(self._program.lower(state, batch).compile)
                    for batch in batches.values()
                ]
                done = concurrent.futures.as_completed(compiling)
                for number, program in enumerate(done, start=1):
                    program.result()
                    now = time.monotonic()
                    if number == len(batches) or now - line > _SECONDS_PER_LINE:
                        line = now
                        _log.info(
                            "%d of %d are ready after %.0f s.",
                            number,
                            len(batches),
                            now - start,
                        )
            finally:
                threads.shutdown(wait=False, cancel_futures=True)
        self._compiled |= batches.keys()


def _shapes(batch):
    return tuple(array.shape for array in jax.tree.leaves(batch))


def _text(shapes):
    """Returns the rows and the different lengths: 64 x 40 + 8."""
    lengths = {length for shape in shapes for length in shape[1:]}
    longest_first = map(str, sorted(lengths, reverse=True))
    return f"{shapes[0][0]} x {' + '.join(longest_first)}"


def keep_programs():
    """Keeps JAX's compiled programs for the next process.

    They are in a folder of the user's. A program is trusted, which a model's
    folder must not be. A cache that is set otherwise, as with
    JAX_COMPILATION_CACHE_DIR, or turned off remains as it is.
    """
    config = jax.config
    if config.jax_compilation_cache_dir is not None:
        return
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    folder = pathlib.Path(cache, "tpt_keras", "programs")
    # If the folder cannot be written, every process compiles.
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_unfinished(folder)
        config.update("jax_compilation_cache_max_size", MAX_CACHE_BYTES)
        config.update("jax_compilation_cache_dir", str(folder))


def _remove_unfinished(folder):
    """Removes programs of killed processes, which JAX would not write again.

    JAX writes the time of the last use after a program, both under a lock.
    """
    with filelock.FileLock(folder / ".lockfile"):
        for program in folder.glob("*-cache"):
            used = program.with_name(
                program.name.removesuffix("-cache") + "-atime"
            )
            if not used.exists():
                program.unlink()
