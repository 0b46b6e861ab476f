"""A server with threads of its own to measure."""

import contextlib
import multiprocessing

from tpt_keras.errors import UsageError


@contextlib.contextmanager
def served(saved_model, setting):
    """Serves in a process of its own, for TensorFlow's threads are a process's.

    Args:
        saved_model: Folder of a model's versions.
        setting: Dict of `num_batch_threads`, `intra_op`, `inter_op` and
            `padding`.

    Yields:
        The address for gRPC.

    Raises:
        UsageError: If it cannot be served.
    """
    spawning = multiprocessing.get_context("spawn")
    here, there = spawning.Pipe()
    process = spawning.Process(
        target=_serve, args=(saved_model, setting, there)
    )
    process.start()
    # Held here, it would never end.
    there.close()
    try:
        address = here.recv()
        if isinstance(address, UsageError):
            raise address
        yield address
    finally:
        here.close()
        process.join()


def _serve(saved_model, setting, connection):
    """Serves until nobody holds the other end, or sends why it cannot."""
    import tensorflow as tf

    from tpt_keras.serving import LocalServer
    from tpt_keras.serving.export.warmup import WARMUP_BATCH_SIZES
    from tpt_keras.serving.local_server.batching import Batching

    tf.config.threading.set_intra_op_parallelism_threads(setting["intra_op"])
    tf.config.threading.set_inter_op_parallelism_threads(setting["inter_op"])
    is_padded = setting["padding"] == "powers"
    batching = Batching(
        num_batch_threads=setting["num_batch_threads"],
        allowed_batch_sizes=WARMUP_BATCH_SIZES if is_padded else (),
    )
    try:
        with LocalServer(
            saved_model, port=0, rest_port=0, batching=batching
        ) as server:
            connection.send(server.address)
            with contextlib.suppress(EOFError):
                connection.recv()
    except UsageError as error:
        connection.send(error)
