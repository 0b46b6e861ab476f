import keras
import numpy as np
from keras import ops

from tpt_keras.training.padded_sizes import padded_size
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

    def _in_few_shapes(self, batch, rows):
        inputs, targets = batch
        config = self.transformer.config
        longest_target = config.max_answer_length + 1

        def padded(ids, longest):
            count, length = ids.shape
            length_added = padded_size(length, longest) - length
            return np.pad(
                ids,
                ((0, rows - count), (0, length_added)),
                constant_values=self._pad_id,
            )

        inputs = {
            "encoder_token_ids": padded(
                inputs["encoder_token_ids"], config.max_question_length + 2
            ),
            "decoder_token_ids": padded(
                inputs["decoder_token_ids"], longest_target
            ),
        }
        return inputs, padded(targets, longest_target)

    def _watch(self, inputs, targets, norm):
        super()._watch(inputs, targets, norm)
        is_answer = ops.any(ops.not_equal(targets, self._pad_id), axis=-1)
        self.examples.update_state(ops.cast(is_answer, "float32"))
        self.tokens.update_state(self._num_tokens(inputs["encoder_token_ids"]))
