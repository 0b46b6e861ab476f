"""Shards drawn by processes of this machine."""

import concurrent.futures
import contextlib
import multiprocessing
import os
import threading
import time

from tpt_keras.data_generators.deaf_children import deaf_children
from tpt_keras.data_generators.problem_shards import write_shard


@contextlib.contextmanager
def drawing_processes(num_workers):
    """Starts processes that draw shards.

    Args:
        num_workers: Number of processes.

    Yields:
        What `problem_generation.generate_modules` draws with.
    """
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(
            concurrent.futures.ProcessPoolExecutor(
                num_workers,
                # Spawned, for TensorFlow does not survive a fork.
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_end_with_parent,
            )
        )
        # After an error there is no need to draw what was asked for.
        stack.callback(pool.shutdown, cancel_futures=True)
        running = {}

        def draw(drawings):
            for task, drawing in drawings.items():
                with deaf_children():
                    running[pool.submit(_draw, *drawing)] = task
            done, _ = concurrent.futures.wait(
                running, return_when=concurrent.futures.FIRST_COMPLETED
            )
            return {running.pop(future): future.result() for future in done}

        yield draw


def _draw(*drawing):
    """Draws a shard; the seconds that it took."""
    start = time.monotonic()
    write_shard(*drawing)
    return time.monotonic() - start


def _end_with_parent():
    """Ends this process with the one that started it, should that be killed.

    It would otherwise wait for work for ever.
    """

    def watch():
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
