import keras_tuner

from tpt_keras.training.train import make_trainer


class TransformerHyperModel(keras_tuner.HyperModel):
    """The variants as a model that any tuner of keras-tuner searches.

    Args:
        space: A `SearchSpace`.
        training: A `TrainingConfig`: what is not searched, such as the steps
            that a cosine ends with.

    Example:

    ```python
    tuner = keras_tuner.RandomSearch(
        TransformerHyperModel(SearchSpace(), training),
        objective=keras_tuner.Objective("val_sequence_accuracy", "max"),
    )
    tuner.search(batches.dataset(), steps_per_epoch=100, epochs=5, ...)
    ```
    """

    def __init__(self, space, training):
        super().__init__(name="transformer")
        self.space = space
        self.training = training

    def build(self, hp):
        """A compiled `TransformerTrainer`, its weights made.

        Args:
            hp: `keras_tuner.HyperParameters`.
        """
        return make_trainer(*self.space.propose(hp, self.training))
