import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops
from keras import tree

from tpt_keras.answer import IMPOSSIBLE
from tpt_keras.answer import Answer
from tpt_keras.answer import AnsweringModel
from tpt_keras.answer import best_answer
from tpt_keras.compilation import TorchGraph
from tpt_keras.compilation import compiled
from tpt_keras.decoding.samplers import Sampler
from tpt_keras.decoding.samplers import get_sampler
from tpt_keras.decoding.samplers import of_tokens
from tpt_keras.decoding.samplers import row_keys
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_positive_integer
from tpt_keras.typing import Tensor

# On JAX, questions are padded to multiples of this length.
_LENGTH_STEP = 32
# Room for tokens in the KV cache at first; it doubles whenever it is full.
FIRST_CACHE_LENGTH = 16
# Finished sequences leave the batch when no more than this share is left.
# Gathering the others costs about as much as a few steps.
UNFINISHED_SHARE = 0.75


class Generator(AnsweringModel):
    """Answers questions with a model and a sampler.

    Threads may share a generator. It compiles the model at its first call. On
    TensorFlow, a first call with a single question is not compiled. On PyTorch,
    calls are compiled after a few seconds of answering.

    Finished answers leave the batch, and the KV cache grows on demand. JAX has
    fixed shapes: there, batches are padded to a few shapes, and each of them is
    compiled. On TensorFlow, `TF_NUM_INTRAOP_THREADS=1` in the environment can
    make single questions faster, and makes batches slower.

    Args:
        model: A `SequenceToSequence`, or what has its `config`, `tokenizer`,
            `variables`, `init_cache`, `grow_cache`, `decode_step` and
            `changing_caches`.
        sampler: A `Sampler`, or a name in `SAMPLERS`: `"greedy"`, `"beam"` or
            `"top_k"`.
        max_length: Most tokens to decode. Defaults to
            `model.config.max_answer_length`: such an answer needs no end.
        batch_size: Number of questions decoded together.
        early_exit: Whether finished answers leave the batch. Defaults to
            `True`, except on JAX.

    Example:

    ```python
    generator = Generator(model, BeamSampler(width=3))
    [answer] = generator.answer(["What is the tens digit of 31859?"])
    print(answer.text, answer.log_prob, answer.alternatives)
    ```
    """

    def __init__(
        self,
        model: Any,
        sampler: str | Sampler = "greedy",
        max_length: int | None = None,
        batch_size: int = 64,
        early_exit: bool | None = None,
    ) -> None:
        longest = model.config.max_answer_length
        if max_length is None:
            max_length = longest
        check_positive_integer("max_length", max_length)
        if max_length > longest:
            # Refused if the attention has no room for it.
            model.config.replace(max_answer_length=max_length)
        check_positive_integer("batch_size", batch_size)
        self._has_fixed_shapes = keras.backend.backend() == "jax"
        if early_exit is None:
            early_exit = not self._has_fixed_shapes
        self.model = model
        self.tokenizer = model.tokenizer
        self.config = {
            "vocabulary": model.config.vocabulary,
            "max_question_length": model.config.max_question_length,
            "max_answer_length": max_length,
        }
        self.sampler = get_sampler(sampler)
        self.max_length = max_length
        self.batch_size = batch_size
        self.early_exit = early_exit
        self._lock = threading.Lock()
        # The variables that the programs were compiled for, and the programs.
        self._compiled: tuple[list, dict] = [], {}

    def _answer_batch(self, texts):
        token_ids = self.tokenizer.encode_batch(texts, questions=True)
        found = self.generate_on_batch(token_ids)
        if not (found["log_probs"][:, 0] > IMPOSSIBLE).all():  # or no number
            raise UsageError(
                "No answer has a probability, because weights of the model are "
                "not finite: its training diverged. Load an earlier model."
            )
        for rows, log_probs in zip(found["token_ids"], found["log_probs"]):
            yield best_answer(
                Answer(self.tokenizer.decode(token_ids), log_prob)
                for token_ids, log_prob in zip(rows, log_probs.tolist())
            )

    def _score_batch(self, questions, answers):
        encode = self.tokenizer.encode_batch
        found = self._run(
            "score", encode(questions, questions=True), encode(answers)
        )
        return map(Answer, answers, found["log_probs"].tolist())

    def generate_on_batch(
        self, encoder_token_ids: Tensor
    ) -> dict[str, np.ndarray]:
        """Runs `generate` compiled, on NumPy arrays; checks the token ids."""
        token_ids = np.asarray(encoder_token_ids).astype("int32")
        check_token_ids(token_ids, self.model.config.vocabulary_size)
        return self._run("generate", token_ids)

    def _run(self, name, *token_ids):
        num_rows = len(token_ids[0])
        if self._has_fixed_shapes:
            limits = self.model.config.max_question_length, self.max_length
            token_ids = map(self._padded, token_ids, limits)
        found = self._program(name)(*token_ids)
        return {name: values[:num_rows] for name, values in found.items()}

    def init_cache(self, encoder_token_ids: Tensor) -> dict[str, Any]:
        """Encodes questions `(batch, source_length)`, for `generate`."""
        # The cache of an early exit grows.
        cache_length = 1 if self.early_exit else self.max_length
        return self.model.init_cache(encoder_token_ids, cache_length)

    def generate(
        self, encoder_token_ids: Tensor, cache: dict[str, Any] | None = None
    ) -> dict[str, Tensor]:
        """Decodes answers, in pure `keras.ops`.

        Args:
            encoder_token_ids: Tensor `(batch, source_length)`.
            cache: What `init_cache` returns for them. Made here by default.

        Returns:
            Dict, the best answer first: `token_ids`, int32 `(batch,
            num_sequences, max_length)`, padded behind the end symbol; and
            `log_probs`, float32 `(batch, num_sequences)`, of the tokens up to
            the end symbol, with it.
        """
        if cache is None:
            cache = self.init_cache(encoder_token_ids)
        return self._generate(encoder_token_ids, cache)

    def _generate(self, encoder_token_ids, cache, compile_step=None):
        model, num_sequences = self.model, self.sampler.num_sequences
        tokenizer = self.tokenizer
        # All sequences of a row read the same question.
        if num_sequences > 1:
            cache = tree.map_structure(
                lambda values: ops.repeat(values, num_sequences, axis=0), cache
            )

        def step(token_ids, cache, index):
            logits, cache = model.decode_step(token_ids, cache, index)
            return logits, {name: cache[name] for name in model.changing_caches}

        early_exit = EarlyExit(model.grow_cache, num_sequences, compile_step)
        return self.sampler.decode(
            step,
            cache,
            ops.shape(encoder_token_ids)[0],
            self.max_length,
            tokenizer.start_id,
            tokenizer.end_id,
            tokenizer.pad_id,
            tokenizer.answer_mask(model.config.vocabulary_size),
            row_keys=lambda: row_keys(encoder_token_ids, tokenizer.pad_id),
            while_loop=early_exit if self.early_exit else None,
        )

    def score_token_ids(
        self, encoder_token_ids: Tensor, decoder_token_ids: Tensor
    ) -> dict[str, Tensor]:
        """Computes log-probabilities of answers, in pure `keras.ops`.

        Args:
            encoder_token_ids: Tensor `(batch, source_length)`.
            decoder_token_ids: Tensor `(batch, target_length)`, with the start
                and the end symbol.

        Returns:
            Dict of `log_probs`, float32 `(batch,)`, as `generate` defines them.
        """
        inputs = {
            "encoder_token_ids": encoder_token_ids,
            "decoder_token_ids": decoder_token_ids[:, :-1],
        }
        log_probs = ops.log_softmax(
            ops.cast(self.model(inputs, training=False), "float32"), axis=-1
        )
        next_ids = decoder_token_ids[:, 1:]
        log_probs = of_tokens(log_probs, next_ids)
        # An answer of the largest length needs no end.
        positions = ops.arange(ops.shape(next_ids)[1], dtype="int32")
        counts = ops.logical_and(
            self.model.padding_mask(next_ids), positions < self.max_length
        )
        return {"log_probs": ops.sum(ops.where(counts, log_probs, 0.0), -1)}

    def _program(self, name):
        variables = list(self.model.variables)
        with self._lock:
            compiled_for, programs = self._compiled
            # LoRA and quantization exchange a model's variables.
            if list(map(id, compiled_for)) != list(map(id, variables)):
                programs = {}
                self._compiled = variables, programs
            if name not in programs:
                function = self.score_token_ids
                if name == "generate":
                    function = self._in_graphs()
                programs[name] = compiled(function, variables)
            return programs[name]

    def _in_graphs(self):
        """Returns `generate`. On PyTorch its parts become graphs."""
        if keras.backend.backend() != "torch":
            return lambda token_ids: self.generate(token_ids)
        init_cache = TorchGraph(self.init_cache)
        steps = []

        def compile_step(step):
            # The steps of all batches do the same.
            if not steps:
                steps.append(TorchGraph(step))
            return steps[0]

        return lambda token_ids: self._generate(
            token_ids, init_cache(token_ids), compile_step
        )

    def _padded(self, token_ids, max_length):
        """Pads a batch to one of a few shapes."""
        num_rows, length = token_ids.shape
        longest = max(length, max_length + 2)
        padding = min(-length % _LENGTH_STEP, longest - length)
        more_rows = (1 << max(num_rows - 1, 0).bit_length()) - num_rows
        pad_id = self.tokenizer.pad_id
        token_ids = np.pad(
            token_ids, ((0, 0), (0, padding)), constant_values=pad_id
        )
        # Copies of a row take no more steps than the row.
        mode = {"mode": "edge"} if num_rows else {"constant_values": pad_id}
        return np.pad(token_ids, ((0, more_rows), (0, 0)), **mode)


def check_token_ids(token_ids: Tensor, vocabulary_size: int) -> None:
    """Raises a `UsageError` for an unknown token id. JAX would give NaN."""
    try:
        token_ids = ops.convert_to_numpy(token_ids)
    except (NotImplementedError, TypeError):
        return  # A traced tensor has no values.
    unknown = token_ids[(token_ids < 0) | (token_ids >= vocabulary_size)]
    if len(unknown):
        raise UsageError(
            f"The token id {unknown[0]} is not in the model's vocabulary. Use "
            f"ids from 0 to {vocabulary_size - 1}.",
            field="encoder_token_ids",
        )


class EarlyExit:
    """A while loop that drops finished sequences from the batch.

    It also grows the KV cache on demand. It takes the place of
    `keras.ops.while_loop` in `Sampler.decode` and gives the same results. It
    needs a backend whose loops may change shapes, which JAX's may not.

    Args:
        grow_cache: A model's `grow_cache`.
        num_sequences: Number of sequences of a question. They leave together.
        compile_step: Function that compiles the loop's body. Defaults to none.
    """

    def __init__(
        self,
        grow_cache: Callable[[Any, Any], Any],
        num_sequences: int = 1,
        compile_step: Callable[..., Any] | None = None,
    ) -> None:
        self._grow_cache = grow_cache
        self._num_sequences = num_sequences
        self._compile_step = compile_step

    def __call__(
        self,
        cond: Callable[..., Tensor],
        body: Callable[..., Any],
        loop_vars: tuple[dict[str, Any]],
        maximum_iterations: int,
    ) -> tuple[dict[str, Any]]:
        """Runs the loop; returns the last `token_ids` and `log_probs` alone.

        The arguments are those of `keras.ops.while_loop`. The cache in the
        state may have the length 1.
        """
        (state,) = loop_vars

        def step(state):
            (state,) = body(state)
            return ({**state, "is_full": self._most_are_unfinished(state)},)

        if self._compile_step is not None:
            step = self._compile_step(step)
        results = {name: state[name] for name in ("token_ids", "log_probs")}
        rows = ops.arange(ops.shape(state["is_ended"])[0], dtype="int32")
        # Even at the start: a TensorFlow loop keeps the shapes it knows, and
        # forgets them here.
        state, rows = self._unfinished_only(state, rows)
        cache_length = _untraced(
            min(FIRST_CACHE_LENGTH, maximum_iterations), state["cache"]
        )
        state = self._grown(state, cache_length)

        def has_steps(state, cache_length, rows, results):
            return cond(state) & (state["index"] < maximum_iterations)

        def take_steps(state, cache_length, rows, results):
            def keeps_shapes(state):
                # Operators, because PyTorch runs this at every step.
                return state["is_full"] & (state["index"] < cache_length)

            (state,) = ops.while_loop(keeps_shapes, step, (state,))
            results = {
                name: ops.scatter_update(
                    values, ops.expand_dims(rows, -1), state[name]
                )
                for name, values in results.items()
            }
            state, rows = self._unfinished_only(state, rows)
            cache_length = ops.where(
                state["index"] < cache_length,
                cache_length,
                ops.minimum(2 * cache_length, maximum_iterations),
            )
            return self._grown(state, cache_length), cache_length, rows, results

        *_, results = ops.while_loop(
            has_steps, take_steps, (state, cache_length, rows, results)
        )
        return (results,)

    def _grown(self, state, cache_length):
        return {
            **state,
            "cache": self._grow_cache(state["cache"], cache_length),
            "is_full": ops.ones((), "bool"),
        }

    def _unfinished(self, state):
        is_ended = ops.reshape(state["is_ended"], (-1, self._num_sequences))
        return ops.logical_not(ops.all(is_ended, axis=-1))

    def _most_are_unfinished(self, state):
        unfinished = ops.cast(self._unfinished(state), "float32")
        return ops.mean(unfinished) > UNFINISHED_SHARE

    def _unfinished_only(self, state, rows):
        unfinished = ops.repeat(self._unfinished(state), self._num_sequences)
        if keras.backend.backend() == "torch" and (
            bool(ops.all(unfinished)) or not bool(ops.any(unfinished))
        ):
            return state, rows  # The loop ends, or goes on with all.
        (kept,) = ops.nonzero(unfinished)
        return tree.map_structure(
            lambda values: (
                ops.take(values, kept, axis=0) if len(values.shape) else values
            ),
            (state, rows),
        )


def _untraced(number, cache):
    """Hides a number's value from TensorFlow, which folds constants."""
    if keras.backend.backend() != "tensorflow":
        return number
    for values in tree.flatten(cache):
        first = ops.cast(ops.reshape(values, (-1,))[:1], "int32")
        number = number + 0 * ops.sum(first)
    return number
