import functools

import numpy as np

from tpt_keras.data_generators.numbered_batches import NumberedBatches
from tpt_keras.data_generators.permutation import permute
from tpt_keras.errors import UsageError

# Batches that are sorted out together. More of them pad less, and take more
# memory and more time until the first is there.
WINDOW_BATCHES = 128

# Problems that tell which lengths batches have: read in about half a second,
# where a window is not larger.
SAMPLED_PROBLEMS = 2**16

# How much longer a question may pass for when batches are sorted out.
LENGTH_NOISE = 0.2


class ProblemBatches(NumberedBatches):
    """Token batches of similar lengths, from anywhere in the training.

    The order of an epoch is a pseudorandom permutation of all examples, given
    by a formula, so that it takes no memory and any step can be the first.
    Along that order, windows of `WINDOW_BATCHES` batches are read; a window is
    sorted by question length into strips and every strip by answer length, cut
    into batches, and the batches are taken in random order. Every epoch visits
    every example once; its last batch is smaller where the numbers do not
    divide.

    A batch is a pair of inputs, a dict of `encoder_token_ids` `(batch,
    source_length)` and `decoder_token_ids` `(batch, target_length)`, and
    targets `(batch, target_length)`: int32 arrays.

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

    def __len__(self):
        """Number of examples of an epoch."""
        return len(self.source)

    @property
    def steps_per_epoch(self):
        return -(-len(self) // self.batch_size)

    @property
    def signature(self):
        import tensorflow as tf

        tokens = tf.TensorSpec((None, None), tf.int32)
        inputs = {"encoder_token_ids": tokens, "decoder_token_ids": tokens}
        return inputs, tokens

    def _parts(self, shards, num_shards):
        # Two: for whoever asks one dataset twice at a time.
        read_window = functools.lru_cache(maxsize=2)(self._window)

        def part(number):
            step, place = divmod(number, len(shards))
            epoch, first, row = self._place(step)
            _, _, batches, encode = read_window(epoch, first)
            return encode(batches[row][shards[place] :: num_shards])

        return part

    def _place(self, step):
        """The epoch, the window's first batch and the place in the window."""
        epoch, step = divmod(step, self.steps_per_epoch)
        row = step % WINDOW_BATCHES
        return epoch, step - row, row

    def indices(self, step):
        """Which problems of the source a batch holds.

        Args:
            step: Number of the batch.

        Returns:
            Integer array `(batch,)`.
        """
        epoch, first, row = self._place(step)
        indices, _, batches, _ = self._window(epoch, first)
        return indices[batches[row]]

    def sample_lengths(self):
        """Lengths of the first batches, without making them.

        Returns:
            Two arrays `(batches, 2)`: the source and the target length, and how
            much of it is no padding, as a mean over the rows.
        """
        end = min(-(-SAMPLED_PROBLEMS // self.batch_size), self.steps_per_epoch)
        rows = [
            lengths[rows]
            for first in range(0, end, WINDOW_BATCHES)
            for _, lengths, batches, _ in [self._window(0, first)]
            for rows in batches
        ]
        longest = np.array([lengths.max(axis=0) for lengths in rows])
        return longest, np.array([lengths.mean(axis=0) for lengths in rows])

    def _window(self, epoch, first):
        """The window that starts with batch `first`.

        Returns:
            The indices of its problems, their source and target lengths, the
            rows of its batches, and what encodes rows.
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

        # With the start and the end symbol, of which a target lacks one.
        lengths = np.stack([question_lengths + 2, answer_lengths + 1], axis=-1)
        return indices, lengths, batches, encode

    def _encode(self, texts):
        """Padded token ids of UTF-8, start and end symbol included."""
        return self.tokenizer.encode_batch(
            [text.decode("utf-8", "replace") for text in texts]
        )


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
