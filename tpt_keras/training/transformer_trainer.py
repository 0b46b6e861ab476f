import keras
from keras import ops

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

    def __init__(self, transformer, **kwargs):
        super().__init__(transformer, transformer.tokenizer.pad_id, **kwargs)
        self.accuracies.insert(0, SequenceAccuracy(self._pad_id))
        self.examples = keras.metrics.Sum("examples")

    def _watch(self, inputs, targets, norm):
        super()._watch(inputs, targets, norm)
        is_answer = ops.any(ops.not_equal(targets, self._pad_id), axis=-1)
        self.examples.update_state(ops.cast(is_answer, "float32"))
        self.tokens.update_state(self._num_tokens(inputs["encoder_token_ids"]))
