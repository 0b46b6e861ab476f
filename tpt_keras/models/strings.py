"""Strings as inputs of a model: encoded where it trains, else refused."""

from typing import Any

import keras
import numpy as np

from tpt_keras.errors import UsageError

# Lengths are padded to multiples, so that there are few shapes to compile.
_LENGTH_STEP = 16


def encode_pairs(
    model: keras.Model, x: Any, y: Any
) -> tuple[Any, Any, dict[str, np.ndarray]]:
    """Encodes lists of questions and answers for `fit` and `evaluate`.

    Anything else is left as it is, unless it has strings.

    Returns:
        `x`, `y` and a dict of more arguments: `sample_weight`, if they were
        strings.

    Raises:
        UsageError: If a string cannot be encoded, or some inputs are strings
            and others are not.
    """
    if isinstance(x, (list, tuple)) and not x:
        raise UsageError("There are no questions.", field="x")
    if not isinstance(x, dict) and _has_strings(x) and not _has_strings(y):
        raise UsageError(
            "`fit` and `evaluate` need an answer, a string, for each question."
            f" Received: {y!r}"[:200],
            field="y",
        )
    if isinstance(x, dict) or not (_has_strings(x) and _has_strings(y)):
        refuse_strings((x, y))
        return x, y, {}
    tokenizer = model.tokenizer
    x, y = ([_text(string) for string in strings] for strings in (x, y))
    questions = tokenizer.encode_questions(x, model.config.max_question_length)
    longest = max(map(len, y), default=0)
    if longest > model.config.max_answer_length:
        raise UsageError(
            f"An answer has {longest} characters, and the model's "
            f"`max_answer_length` is {model.config.max_answer_length}.",
            field="max_answer_length",
        )
    answers = _pad(tokenizer, tokenizer.encode_batch(y), more=1)
    inputs = {
        "encoder_token_ids": _pad(tokenizer, questions),
        "decoder_token_ids": answers[:, :-1],
    }
    targets = answers[:, 1:]
    weights = (targets != tokenizer.pad_id).astype("float32")
    # Keras divides by the number of all tokens, padding included.
    return inputs, targets, {"sample_weight": weights / weights.mean()}


def refuse_strings(inputs: Any) -> None:
    """Raises a `UsageError` if there are strings in place of token ids."""
    if any(map(_has_strings, keras.tree.flatten(inputs))):
        raise UsageError(
            "Received strings where token ids are expected. Answer questions "
            "with `solve`, or encode them with "
            "`model.tokenizer.encode_questions`; `fit` and `evaluate` take "
            "lists of questions and of answers."
        )


def _has_strings(x):
    if hasattr(x, "element_spec"):  # a dataset of TensorFlow
        return any(
            getattr(each, "dtype", None) == "string"
            for each in keras.tree.flatten(x.element_spec)
        )
    if isinstance(x, (list, tuple)):
        return bool(x) and _has_strings(x[0])
    kind = getattr(getattr(x, "dtype", None), "kind", "")
    return isinstance(x, (str, bytes)) or kind in ("O", "S", "T", "U")


def _text(string):
    return string.decode() if isinstance(string, bytes) else str(string)


def _pad(tokenizer, token_ids, more=0):
    """Pads to a multiple of a length, and some tokens more."""
    width = (more - token_ids.shape[1]) % _LENGTH_STEP
    return np.pad(
        token_ids, ((0, 0), (0, width)), constant_values=tokenizer.pad_id
    )
