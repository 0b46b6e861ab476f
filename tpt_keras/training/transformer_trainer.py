import keras
import numpy as np
from keras import ops

from tpt_keras.training.length_grid import LengthGrid
from tpt_keras.training.sequence_accuracy import SequenceAccuracy
from tpt_keras.training.trainer import Trainer


class TransformerTrainer(Trainer):
    """Trains and evaluates a `SequenceToSequence`; see `Trainer`.

    Args:
        transformer: A `SequenceToSequence`.
        **kwargs: See `Trainer`.

    Example:

    ```python
    trainer = TransformerTrainer(transformer, global_clipnorm=0.1)
    trainer.compile(optimizer="adam", jit_compile=False)
    trainer.fit(trainer.feed(batches), steps_per_epoch=100, epochs=10)
    ```
    """

    EVALUATED = ("loss", "sequence_accuracy", "token_accuracy")

    def __init__(self, transformer, **kwargs):
        super().__init__(transformer, transformer.tokenizer.pad_id, **kwargs)
        self.accuracies.insert(0, SequenceAccuracy(self._pad_id))
        self.examples = keras.metrics.Sum("examples")
        config = transformer.config
        # With the start and the end symbol, of which a target lacks one.
        self._grid = LengthGrid.of_parts(
            (config.max_question_length + 2, config.max_answer_length + 1)
        )

    def _choose_shapes(self, batches):
        self._grid = LengthGrid(batches.length_pairs, self._grid.limits)

    def _of_known_shapes(self, rows, make_array, batches=None):
        pairs = self._grid.pairs
        if batches is not None:
            # Whatever is no longer than the longest fits one no larger.
            longest = map(min, batches.length_pairs[-1], self._grid.limits)
            last = self._grid.pair(*longest)
            pairs = [*(pair for pair in pairs if sum(pair) < sum(last)), last]

        def make_batch(source_length, target_length):
            source, target = (
                make_array((rows, length))
                for length in (source_length, target_length)
            )
            inputs = {"encoder_token_ids": source, "decoder_token_ids": target}
            return inputs, target

        return [make_batch(*pair) for pair in pairs]

    def _in_few_shapes(self, batch, rows):
        inputs, targets = batch
        source = inputs["encoder_token_ids"]
        source_length, target_length = self._grid.pair(
            source.shape[1], targets.shape[1]
        )

        def padded(ids, length):
            added = (0, rows - ids.shape[0]), (0, length - ids.shape[1])
            return np.pad(ids, added, constant_values=self._pad_id)

        inputs = {
            "encoder_token_ids": padded(source, source_length),
            "decoder_token_ids": padded(
                inputs["decoder_token_ids"], target_length
            ),
        }
        return inputs, padded(targets, target_length)

    def _watch(self, inputs, targets, norm):
        super()._watch(inputs, targets, norm)
        is_answer = ops.any(ops.not_equal(targets, self._pad_id), axis=-1)
        self.examples.update_state(ops.cast(is_answer, "float32"))
        self.tokens.update_state(self._num_tokens(inputs["encoder_token_ids"]))
