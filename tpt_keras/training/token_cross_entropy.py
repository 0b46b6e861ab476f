import keras


@keras.saving.register_keras_serializable("tpt_keras")
class TokenCrossEntropy(keras.losses.SparseCategoricalCrossentropy):
    """Cross-entropy averaged over all non-padding target tokens of the batch.

    Args:
        pad_id: Token id of padding, which counts for nothing.
        name: Name of the loss.
    """

    def __init__(self, pad_id, name="token_cross_entropy"):
        super().__init__(from_logits=True, ignore_class=pad_id, name=name)

    def get_config(self):
        return {"pad_id": self.ignore_class, "name": self.name}
