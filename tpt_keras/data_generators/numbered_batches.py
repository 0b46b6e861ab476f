import contextlib
import itertools

from tpt_keras.errors import UsageError


class NumberedBatches:
    """Batches of a training, of which any can be the first.

    So a training goes on where it was without reading what came before. A
    subclass has `batch_size`, `steps_per_epoch`, a length (the examples of an
    epoch), a `signature` and `_parts`.
    """

    _error = None

    @property
    def signature(self):
        """What a batch looks like, as nested `tf.TensorSpec`s."""
        raise NotImplementedError

    def _parts(self, shards, num_shards):
        """What gives the parts of the batches, numbered one after another."""
        raise NotImplementedError

    def iterate(
        self, start_step=0, num_epochs=None, shards=range(1), num_shards=1
    ):
        """Generates batches.

        Args:
            start_step: Number of the first batch; takes no longer than `0`.
            num_epochs: How many epochs. Defaults to no end.
            shards: Which parts of every batch to yield, one after another:
                the indices of this worker's replicas.
            num_shards: Number of parts that every batch is cut into: the
                number of all replicas.

        Yields:
            Batches, or this worker's parts of them.
        """
        start, stop = self._numbers(start_step, num_epochs, shards)
        numbers = itertools.count(start) if stop is None else range(start, stop)
        yield from map(self._parts(shards, num_shards), numbers)

    def dataset(
        self, start_step=0, num_epochs=None, shards=range(1), num_shards=1
    ):
        """The batches as a `tf.data.Dataset`.

        Args:
            start_step: See `iterate`.
            num_epochs: See `iterate`.
            shards: See `iterate`.
            num_shards: See `iterate`.

        Returns:
            A dataset of what `iterate` generates.
        """
        import tensorflow as tf

        from tpt_keras.data_generators.function_dataset import function_dataset

        part = self._parts(shards, num_shards)

        def remember_error(number):
            try:
                return part(number)
            except Exception as error:
                self._error = error
                raise

        return function_dataset(
            remember_error,
            *self._numbers(start_step, num_epochs, shards),
            self.signature,
        ).prefetch(tf.data.AUTOTUNE)

    @contextlib.contextmanager
    def own_errors(self):
        """Raises what reading a batch raised, not what tf.data makes of it.

        For whoever asks a dataset of these batches inside: a damaged file is a
        `UsageError` again.
        """
        self._error = None
        try:
            yield
        except Exception as error:
            if self._error is None or isinstance(error, UsageError):
                raise
            raise self._error from None

    def _numbers(self, start_step, num_epochs, shards):
        """First number and end, or None, of what `_parts` takes."""
        stop = None
        if num_epochs is not None:
            stop = num_epochs * self.steps_per_epoch * len(shards)
        return start_step * len(shards), stop
