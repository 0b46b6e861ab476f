"""Limits on the time and the memory that a test may take."""

import contextlib
import time
import tracemalloc


@contextlib.contextmanager
def bounded(seconds=5.0, num_bytes=2**27):
    """Fails if the block takes more time or memory than this."""
    tracemalloc.start()
    start = time.process_time()
    try:
        yield
        taken = time.process_time() - start
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < seconds, f"{taken} seconds"
    assert peak < num_bytes, f"{peak} bytes"
