import numpy as np
import tensorflow as tf

from tpt_keras.data_generators.permutation import permute
from tpt_keras.data_generators.vocabulary import SPECIAL_SYMBOLS
from tpt_keras.errors import UsageError

# Batches that are sorted out together. More of them pad less, and take more
# memory and more time until the first is there.
WINDOW_BATCHES = 128

# How much longer a question may pass for when batches are sorted out.
LENGTH_NOISE = 0.2


class ProblemBatches:
    """Token batches of similar lengths, from anywhere in the training.

    The order of an epoch is a pseudorandom permutation of all examples, given
    by a formula, so that it takes no memory and any step can be the first.
    Along that order, windows of `WINDOW_BATCHES` batches are read; a window is
    sorted by question length into strips and every strip by answer length, cut
    into batches, and the batches are taken in random order. Every epoch visits
    every example once; its last batch is smaller where the numbers do not
    divide.

    Args:
        source: What has a length and a `read`: a `ProblemSource`, a
            `ProblemSlice`, a `ProblemMixture`.
        tokenizer: A `CharacterTokenizer`.
        batch_size: Number of problems in a batch.
        seed: Seed of the order.
    """

    def __init__(self, source, tokenizer, batch_size, seed=0):
        if not len(source):
            raise UsageError("There are no problems: the dataset is empty.")
        self.source = source
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.seed = seed
        ids = {
            ord(symbol): token_id
            for symbol, token_id in tokenizer.token_ids.items()
            if symbol not in SPECIAL_SYMBOLS
        }
        # Of every code point up to the highest that is known; the last row
        # stands for all above.
        self._token_of_code = np.full(max(ids, default=0) + 2, -1, "int32")
        self._token_of_code[list(ids)] = list(ids.values())

    def __len__(self):
        """Number of examples of an epoch."""
        return len(self.source)

    @property
    def steps_per_epoch(self):
        return -(-len(self) // self.batch_size)

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
            Pairs of inputs, a dict of `encoder_token_ids` `(batch,
            source_length)` and `decoder_token_ids` `(batch, target_length)`,
            and targets `(batch, target_length)`: int32 arrays.
        """
        epoch, step = divmod(start_step, self.steps_per_epoch)
        while num_epochs is None or epoch < num_epochs:
            window, skip = divmod(step, WINDOW_BATCHES)
            for first in range(
                window * WINDOW_BATCHES, self.steps_per_epoch, WINDOW_BATCHES
            ):
                _, batches, encode = self._window(epoch, first)
                for rows in batches[skip:]:
                    for shard in shards:
                        yield encode(rows[shard::num_shards])
                skip = 0
            epoch, step = epoch + 1, 0

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
        tokens = tf.TensorSpec((None, None), tf.int32)
        dataset = tf.data.Dataset.from_generator(
            lambda: self.iterate(start_step, num_epochs, shards, num_shards),
            output_signature=(
                {"encoder_token_ids": tokens, "decoder_token_ids": tokens},
                tokens,
            ),
        )
        if num_epochs is None:
            cardinality = tf.data.INFINITE_CARDINALITY
        else:
            steps = num_epochs * self.steps_per_epoch - start_step
            cardinality = max(steps, 0) * len(shards)
        # Keras warns at the end of a dataset whose length it was not told.
        return dataset.apply(
            tf.data.experimental.assert_cardinality(cardinality)
        ).prefetch(tf.data.AUTOTUNE)

    def indices(self, step):
        """Which problems of the source a batch holds.

        Args:
            step: Number of the batch.

        Returns:
            Integer array `(batch,)`.
        """
        epoch, step = divmod(step, self.steps_per_epoch)
        first = step - step % WINDOW_BATCHES
        indices, batches, _ = self._window(epoch, first)
        return indices[batches[step - first]]

    def _window(self, epoch, first):
        """The window that starts with batch `first`.

        Returns:
            The indices of its problems, the rows of its batches, and what
            encodes rows.
        """
        positions = np.arange(
            first * self.batch_size,
            min((first + WINDOW_BATCHES) * self.batch_size, len(self)),
        )
        indices = permute(positions, len(self), (self.seed, epoch))
        questions, answers = self.source.read(indices)
        question_lengths = np.fromiter(map(len, questions), "int32")
        answer_lengths = np.fromiter(map(len, answers), "int32")
        rng = np.random.default_rng((self.seed, epoch, first))
        batches = similar_length_batches(
            question_lengths, answer_lengths, self.batch_size, rng
        )
        rng.shuffle(batches)

        def encode(rows):
            target = self._encode(answers[rows])
            return (
                {
                    "encoder_token_ids": self._encode(questions[rows]),
                    "decoder_token_ids": target[:, :-1],
                },
                target[:, 1:],
            )

        return indices, batches, encode

    def _encode(self, texts):
        """Padded token ids of UTF-8, start and end symbol included."""
        texts = [text.decode("utf-8", "replace") for text in texts]
        lengths = np.fromiter(map(len, texts), "int32")
        codes = np.frombuffer("".join(texts).encode("utf-32-le"), "<u4")
        above_all = len(self._token_of_code) - 1
        ids = self._token_of_code[np.minimum(codes, above_all)]
        if ids.size and ids.min() < 0:
            # Slow, but says which character it is.
            for text in texts:
                self.tokenizer.encode(text)
        batch = np.full(
            (len(texts), lengths.max(initial=0) + 2),
            self.tokenizer.pad_id,
            dtype="int32",
        )
        is_character = np.arange(batch.shape[1] - 1) < lengths[:, None]
        batch[:, 0] = self.tokenizer.start_id
        batch[:, 1:][is_character] = ids
        batch[np.arange(len(texts)), lengths + 1] = self.tokenizer.end_id
        return batch


def similar_length_batches(question_lengths, answer_lengths, batch_size, rng):
    """Cuts problems into batches whose lengths are similar.

    Similar and not equal: lengths tell problems apart (a place value question
    of some length has a number of so many digits), and a gradient of a batch
    of one kind alone is a poor one.

    Args:
        question_lengths: Array `(count,)`.
        answer_lengths: Array `(count,)`.
        batch_size: Number of problems in a batch.
        rng: NumPy's generator of the noise.

    Returns:
        List of arrays of indices, of which one may be smaller.
    """
    noise = rng.uniform(1.0, 1.0 + LENGTH_NOISE, len(question_lengths))
    order = np.argsort(question_lengths * noise, kind="stable")
    num_batches = -(-len(order) // batch_size)
    # A wide strip lets answers be sorted out, a narrow one keeps questions
    # together: measured, ten batches keep the padding of both low.
    strip = batch_size * (10 if num_batches > 10 else 1)
    batches = []
    for start in range(0, len(order), strip):
        rows = order[start : start + strip]
        rows = rows[np.argsort(answer_lengths[rows], kind="stable")]
        batches += [
            rows[first : first + batch_size]
            for first in range(0, len(rows), batch_size)
        ]
    return batches
