import math

import keras
from keras import ops

from tpt_keras.errors import UsageError
from tpt_keras.training.trainer import Trainer

# Every symbol of a text counts.
NO_PADDING = -1


class LanguageModelTrainer(Trainer):
    """Trains and evaluates a `TransformerXL` that keeps its memory.

    Its batches are those of `TextSegments`, of as many streams. What is read
    in a training stays in the model's memory from one batch to the next; an
    evaluation has one of its own, empty at first.

    Args:
        transformer: A `TransformerXL` with a `batch_size`.
        **kwargs: See `Trainer`, which can cut no batch here: a stream's memory
            belongs to its row.

    Raises:
        UsageError: If batches shall be cut.

    Example:

    ```python
    trainer = LanguageModelTrainer(model)
    trainer.compile(optimizer="adam", jit_compile=False)
    trainer.fit(trainer.feed(segments), steps_per_epoch=100, epochs=10)
    ```
    """

    EVALUATED = ("loss", "bits_per_character", "token_accuracy")

    def __init__(self, transformer, **kwargs):
        super().__init__(transformer, NO_PADDING, **kwargs)
        if self.gradient_accumulation_steps > 1:
            raise UsageError(
                "gradient_accumulation_steps cut a batch, whose rows a "
                "language model remembers. Leave them out."
            )

    def evaluate(self, *args, **kwargs):
        memory = keras.tree.flatten(self.transformer.memory)
        kept = [ops.convert_to_numpy(variable) for variable in memory]
        self.transformer.reset_memory()
        try:
            return super().evaluate(*args, **kwargs)
        finally:
            for variable, values in zip(memory, kept):
                variable.assign(values)

    def _in_few_shapes(self, batch, rows):
        return batch  # they have one shape already

    def get_metrics_result(self):
        results = super().get_metrics_result()
        bits = results["loss"] / math.log(2.0)
        return {**results, "bits_per_character": bits}
