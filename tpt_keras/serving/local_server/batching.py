import dataclasses
import uuid

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Batching:
    """How requests that wait at the same time become one batch.

    Of TF Serving's own op, with the names of its batching parameters.

    Args:
        max_batch_size: Most rows of a request, and of a batch.
        num_batch_threads: Batches computed at the same time.
        batch_timeout_micros: Microseconds that a request waits for others.
        allowed_batch_sizes: Sizes to fill batches up to, with copies of a
            row, the last of which is `max_batch_size`. Defaults to any size.
    """

    max_batch_size: int = 64
    num_batch_threads: int = 1
    batch_timeout_micros: int = 2000
    allowed_batch_sizes: tuple = ()

    def batched(self, signature):
        """A signature whose calls of the same time are one batch, if possible.

        It is not where rows of different requests differ in length.

        Args:
            signature: Signature of a SavedModel.

        Returns:
            A function with the same keyword arguments and outputs.
        """
        specs = signature.structured_input_signature[1]
        names = sorted(signature.structured_outputs)
        outputs = signature.structured_outputs.values()
        if any(spec.shape.rank != 1 for spec in specs.values()) or any(
            output.shape.rank in (0, None) or output.shape[0] is not None
            for output in outputs
        ):
            return signature

        @tf.nondifferentiable_batch_function(
            num_batch_threads=self.num_batch_threads,
            max_batch_size=self.max_batch_size,
            batch_timeout_micros=self.batch_timeout_micros,
            allowed_batch_sizes=list(self.allowed_batch_sizes) or None,
            max_enqueued_batches=1_000_000,
            enable_large_batch_splitting=False,
        )
        def run_batch(*inputs):
            outputs = signature(**dict(zip(specs, inputs)))
            return [outputs[name] for name in names]

        @tf.function(input_signature=list(specs.values()))
        def run(*inputs):
            # Batches are told apart by name, across models and versions.
            with tf.name_scope(f"batch_{uuid.uuid4().hex}"):
                return dict(zip(names, run_batch(*inputs)))

        concrete = run.get_concrete_function()
        return lambda **inputs: concrete(*(inputs[name] for name in specs))
