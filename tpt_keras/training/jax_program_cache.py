"""Where JAX keeps the programs that it compiles."""

import contextlib
import os
import pathlib

import filelock
import jax

# What was not used for longest goes, where there is more.
MAX_BYTES = 4 * 2**30


def keep_programs():
    """Has JAX keep its programs for the next process.

    In a folder of the user's, for a program is trusted, which a model's folder
    must not be. What somebody has set, as with JAX_COMPILATION_CACHE_DIR,
    remains; so does a cache that is turned off.
    """
    config = jax.config
    if config.jax_compilation_cache_dir is not None:
        return
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    folder = pathlib.Path(cache, "tpt_keras", "programs")
    # A folder that cannot be written: every process compiles.
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_unfinished(folder)
        config.update("jax_compilation_cache_max_size", MAX_BYTES)
        config.update("jax_compilation_cache_dir", str(folder))


def _remove_unfinished(folder):
    """Removes what killed processes left, which JAX would not write again.

    Behind a program JAX writes when it was last used, all of it under a lock.
    """
    with filelock.FileLock(folder / ".lockfile"):
        for program in folder.glob("*-cache"):
            used = program.with_name(
                program.name.removesuffix("-cache") + "-atime"
            )
            if not used.exists():
                program.unlink()
