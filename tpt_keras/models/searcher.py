import keras
import numpy as np
from keras import ops

from tpt_keras.decoding.leaving_rows import LeavingRows

# Lengths of questions are multiples of it where every length is compiled for.
_LENGTH_STEP = 16


class Searcher(keras.Model):
    """A model's search as a model, for Keras to compile it.

    On TensorFlow it is compiled for questions of any number and length, and
    rows leave when they have ended. On JAX, where sizes stay as they are, it is
    compiled for every number and for some lengths, to which questions are
    padded.

    Args:
        solver: A `SequenceToSequence`.
        max_length: See `SequenceToSequence.search`.
        beam_width: See there.

    Call arguments:
        encoder_token_ids: Integer tensor `(batch, source_length)`.

    Returns:
        See there.
    """

    def __init__(self, solver, max_length, beam_width):
        super().__init__(name="searcher", dtype=solver.dtype_policy)
        self.autocast = False  # as in the solver: token ids may be floats
        self.solver = solver
        self._options = {"max_length": max_length, "beam_width": beam_width}
        self._sizes_stay = keras.backend.backend() == "jax"
        # XLA would compile anew for every length of question.
        self.compile(jit_compile=self._sizes_stay)

    def call(self, encoder_token_ids):
        if self._sizes_stay:
            return self.solver.search(encoder_token_ids, **self._options)
        return self.solver.search_from(
            # Room for one token: the loop makes more.
            self.solver.init_cache(encoder_token_ids, max_length=1),
            ops.shape(encoder_token_ids)[0],
            **self._options,
            while_loop=LeavingRows(
                self.solver.grow_cache, self._options["beam_width"]
            ),
        )

    def search_on_batch(self, encoder_token_ids):
        """Searches, compiled.

        Args:
            encoder_token_ids: Integer array `(batch, source_length)`.

        Returns:
            What a call returns, as NumPy arrays.
        """
        if self._sizes_stay:
            encoder_token_ids = self._padded_to_step(encoder_token_ids)
        return self.predict_on_batch(encoder_token_ids)

    def _padded_to_step(self, token_ids):
        length = token_ids.shape[1]
        longest = max(length, self.solver.config.max_question_length + 2)
        room = min(-length % _LENGTH_STEP, longest - length)
        return np.pad(
            token_ids,
            ((0, 0), (0, room)),
            constant_values=self.solver.tokenizer.pad_id,
        )
