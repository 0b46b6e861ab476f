import contextlib
from collections.abc import Callable
from collections.abc import Generator
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from tpt_keras.data_generators.batches import NumberedBatches
from tpt_keras.training.backends import CurrentBackend
from tpt_keras.training.step import COUNTS
from tpt_keras.training.step import METRICS
from tpt_keras.training.step import loss_and_metrics
from tpt_keras.training.step import weighted_batch
from tpt_keras.typing import Tensor


class Trainer(keras.Model):
    """A model and the step that `fit` and `evaluate` make with it.

    The loss is the mean over all target tokens of the global batch that are no
    padding. Gradients are summed over replicas before their global norm is
    clipped; Keras's own step clips the gradient of each replica. So neither
    replicas nor micro-batches change what is learned, except for the noise of
    dropout.

    With `sample_weight`, `(batch,)` or `(batch, target_length)`, the loss and
    the accuracies are weighted means, so that the weights' scale does not
    matter.

    Args:
        model: The model, made under the strategy's scope if there is one.
        loss_and_metrics: Function like `step.loss_and_metrics`.
        metrics: Names of the means that it returns; those of an evaluation.
        counts: Names of the counts that it returns.
        pad_id: Token id of padding, which has no weight. `"auto"`: the
            model's. `None`: there is no padding.
        global_clipnorm: Norm that the whole gradient is clipped at. Defaults
            to no clipping.
        gradient_accumulation_steps: Micro-batches that a batch is split into,
            by the length of its rows. They save memory, and on TensorFlow and
            PyTorch the computing of some padding.

    Example:

    ```python
    trainer = Trainer(model, global_clipnorm=0.1)
    trainer.compile(optimizer="adam")
    with trainer.feed(batches) as feed:
        trainer.fit(feed, steps_per_epoch=100, epochs=10)
    ```
    """

    def __init__(
        self,
        model: keras.Model,
        loss_and_metrics: Callable[
            ..., tuple[Tensor, dict[str, Any]]
        ] = loss_and_metrics,
        metrics: Iterable[str] = METRICS,
        counts: Iterable[str] = COUNTS,
        pad_id: int | str | None = "auto",
        global_clipnorm: float | None = None,
        gradient_accumulation_steps: int = 1,
    ) -> None:
        super().__init__(name="trainer")
        self.model = model
        self.loss_and_metrics = loss_and_metrics
        self._means = tuple(metrics)
        self._counts = tuple(counts)
        self.pad_id = model.tokenizer.pad_id if pad_id == "auto" else pad_id
        self.global_clipnorm = global_clipnorm
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.backend = CurrentBackend()
        means = (*self._means, "gradient_norm")
        self._trackers = {
            **{name: keras.metrics.Mean(name) for name in means},
            **{name: keras.metrics.Sum(name) for name in self._counts},
        }
        self.built = True

    @property
    def stop_training(self) -> bool:
        """`True` once `fit` is to end. Callbacks set it on the model."""
        return self.model.stop_training

    @stop_training.setter
    def stop_training(self, value):
        self.model.stop_training = value

    def fit(self, *args: Any, callbacks: Any = None, **kwargs: Any) -> Any:
        """Fits the model; callbacks see it in place of the trainer."""
        with self._lent_to_callbacks():
            return super().fit(
                *args, callbacks=[_ModelCallbacks(callbacks)], **kwargs
            )

    @contextlib.contextmanager
    def _lent_to_callbacks(self):
        """Gives the model the optimizer and, on JAX, the state of `fit`."""
        model, kept = self.model, getattr(self.model, "optimizer", None)
        model.optimizer = self.optimizer
        if keras.backend.backend() == "jax":
            own = model.jax_state_sync
            model.jax_state_sync = lambda: (self.jax_state_sync(), own())
        try:
            yield
        finally:
            model.optimizer = kept
            if keras.backend.backend() == "jax":
                del model.jax_state_sync

    def call(self, inputs: Any, training: bool | None = None) -> Tensor:
        return self.model(inputs, training=training)

    @contextlib.contextmanager
    def feed(
        self,
        batches: NumberedBatches,
        start_step: int = 0,
        num_epochs: int | None = None,
    ) -> Iterator[Any]:
        """Opens batches for `fit` and `evaluate`, in the strategy's scope.

        Args:
            batches: A `NumberedBatches`.
            start_step: Number of the first batch.
            num_epochs: Number of epochs. Defaults to no end, for a training.
        """
        with (
            contextlib.ExitStack() as last,
            self.backend.scope(),
            batches.opened(),
        ):
            feed = self.backend.feed(self, batches, start_step, num_epochs)
            # Keras keeps a generator in a cycle of references, and its
            # prefetching thread would go on until it is collected. Last,
            # because the thread may wait for the batches.
            if isinstance(feed, Generator):
                last.callback(feed.close)
            yield feed

    def evaluate_batches(self, batches: NumberedBatches) -> dict[str, float]:
        """Returns the `metrics` of an epoch of batches, as a dict."""
        with self.feed(batches, num_epochs=1) as feed:
            results = self.evaluate(
                feed,
                # Keras does not know the length of the feed.
                steps=batches.steps_per_epoch,
                return_dict=True,
                verbose=0,
            )
        return {name: results[name] for name in self._means}

    def no_metrics(self) -> dict[str, Any]:
        """The metrics of an empty batch."""
        return {
            **{name: (ops.zeros(()), ops.zeros(())) for name in self._means},
            **{name: ops.zeros(()) for name in self._counts},
        }

    def track(
        self, metrics: dict[str, Any], gradient_norm: Tensor | None = None
    ) -> dict[str, Any]:
        """Adds metrics of a batch, as `loss_and_metrics` returns them.

        Returns the epoch's metrics so far. The norm is that before clipping.
        """
        if gradient_norm is not None:
            metrics = {**metrics, "gradient_norm": (gradient_norm, 1.0)}
        for name, value in metrics.items():
            if name in self._counts:
                self._trackers[name].update_state(value)
            else:
                total, weight = value
                self._trackers[name].update_state(
                    ops.divide_no_nan(total, weight), weight
                )
        return self.get_metrics_result()

    def test_step(self, data):
        batch = weighted_batch(data, self.pad_id)
        _, metrics = self.loss_and_metrics(self.model, batch)
        return self.track(metrics)

    def make_train_function(self, force=False):
        if self.train_function is None or force:
            self.train_function = self.backend.compile_train_step(self)

    def make_test_function(self, force=False):
        if self.test_function is None or force:
            self.test_function = self.backend.compile_test_step(self)

    def reset_metrics(self) -> None:
        super().reset_metrics()
        self.backend.begin_epoch()

    def _symbolic_build(self, iterator=None, data_batch=None):
        # Keras's own fails with several replicas (keras issues 19246, 20585).
        # Nothing but the optimizer is left to build.
        if self.optimizer is not None and not self.optimizer.built:
            with self.backend.scope():
                self.optimizer.build(self.trainable_variables)

    # TensorFlow's would take the first batch of the feed.
    _maybe_symbolic_build = _symbolic_build


class _ModelCallbacks(keras.callbacks.CallbackList):
    def set_model(self, model):
        super().set_model(model and model.model)

    def set_params(self, params):
        # A `ProgbarLogger` is given to be seen.
        super().set_params(params and {**params, "verbose": 1})
