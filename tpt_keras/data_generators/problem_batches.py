import functools

import numpy as np

from tpt_keras.data_generators.length_pairs import choose_length_pairs
from tpt_keras.data_generators.length_pairs import fitting_pair
from tpt_keras.data_generators.numbered_batches import NumberedBatches
from tpt_keras.data_generators.permutation import permute
from tpt_keras.errors import UsageError

# Batches that are sorted out together. More of them pad less, and take more
# memory and more time until the first is there.
WINDOW_BATCHES = 128

# Problems that tell which lengths there are: read in about half a second.
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
            _, batches, encode = read_window(epoch, first)
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
        indices, batches, _ = self._window(epoch, first)
        return indices[batches[row]]

    @functools.cached_property
    def length_pairs(self):
        """Few pairs of a source and a target length that batches are made for.

        Chosen for the first problems of the order; see `choose_length_pairs`.
        """
        positions = np.arange(min(SAMPLED_PROBLEMS, len(self)))
        _, _, _, lengths = self._read(0, positions)
        return choose_length_pairs(lengths)

    def _read(self, epoch, positions):
        """What is at some places of an epoch's order.

        Returns:
            Indices of problems, the questions, the answers, and integers
            `(problems, 2)`, the lengths of source and target.
        """
        indices = permute(positions, len(self), (self.seed, epoch))
        questions, answers = self.source.read(indices)
        # With the start and the end symbol, of which a target lacks one.
        lengths = [
            np.fromiter(map(len, texts), "int32") + symbols
            for texts, symbols in ((questions, 2), (answers, 1))
        ]
        return indices, questions, answers, np.stack(lengths, axis=-1)

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
        indices, questions, answers, lengths = self._read(epoch, positions)
        rng = np.random.default_rng((self.seed, epoch, first))
        batches = similar_length_batches(
            lengths, self.length_pairs, self.batch_size, rng
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
        return self.tokenizer.encode_batch(
            [text.decode("utf-8", "replace") for text in texts]
        )


def similar_length_batches(lengths, pairs, batch_size, rng):
    """Cuts problems into batches of similar lengths, most of which fit a pair.

    Every pair has the problems that fit no smaller one. What is left over of
    them, for it makes no batch, goes to the next pair that it fits.

    Similar and not equal: lengths tell problems apart (a place value question
    of some length has a number of so many digits), and a gradient of a batch
    of one kind alone is a poor one.

    Args:
        lengths: Integer array `(problems, 2)`, of sources and targets.
        pairs: See `choose_length_pairs`.
        batch_size: Number of problems in a batch.
        rng: NumPy's generator of the noise.

    Returns:
        List of arrays of indices, of which one may be smaller.
    """
    noise = rng.uniform(1.0, 1.0 + LENGTH_NOISE, len(lengths))
    order = np.argsort(lengths[:, 0] * noise, kind="stable")
    waiting = fitting_pair(lengths, pairs)
    batches = []
    for place in range(len(pairs)):
        rows = order[waiting[order] == place]
        if place < len(pairs) - 1:
            left = rows[len(rows) - len(rows) % batch_size :]
            waiting[left] = (
                place + 1 + fitting_pair(lengths[left], pairs[place + 1 :])
            )
            rows = rows[: len(rows) - len(left)]
        batches += _batches_of_pair(rows, lengths[:, 1], batch_size)
    return batches


def _batches_of_pair(rows, target_lengths, batch_size):
    """Cuts rows in the order of their sources into batches."""
    num_batches = -(-len(rows) // batch_size)
    # A wide strip lets targets be sorted out, a narrow one keeps sources
    # together: measured, ten batches keep the padding of both low.
    strip = batch_size * (10 if num_batches > 10 else 1)
    batches = []
    for start in range(0, len(rows), strip):
        part = rows[start : start + strip]
        part = part[np.argsort(target_lengths[part], kind="stable")]
        batches += [
            part[first : first + batch_size]
            for first in range(0, len(part), batch_size)
        ]
    return batches
