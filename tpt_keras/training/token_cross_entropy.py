import keras


@keras.saving.register_keras_serializable("tpt_keras")
class TokenCrossEntropy(keras.losses.SparseCategoricalCrossentropy):
    """Cross-entropy over all non-padding target tokens of the batch.

    Args:
        pad_id: Token id of padding, which counts for nothing.
        reduction: `"sum_over_batch_size"`, Keras's name for the mean, which is
            over the tokens here, or `"sum"`.
        name: Name of the loss.
    """

    def __init__(
        self,
        pad_id,
        reduction="sum_over_batch_size",
        name="token_cross_entropy",
    ):
        super().__init__(
            from_logits=True,
            ignore_class=pad_id,
            reduction=reduction,
            name=name,
        )

    def get_config(self):
        return {
            "pad_id": self.ignore_class,
            "reduction": self.reduction,
            "name": self.name,
        }
