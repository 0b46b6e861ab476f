"""Strings as inputs of a model: encoded where it trains, else refused."""

from typing import Any

import keras
import numpy as np

from tpt_keras.errors import UsageError

# Lengths are padded to multiples, so that there are few shapes to compile.
_LENGTH_STEP = 16


def encode_pairs(
    model: keras.Model, x: Any, y: Any, sample_weight: Any = None
) -> tuple[Any, Any, Any]:
    """Encodes lists of questions and answers for `fit` and `evaluate`.

    Anything else is left as it is, unless it has strings.

    Args:
        model: The model.
        x: Questions, or anything that Keras takes.
        y: Answers, or anything that Keras takes.
        sample_weight: A number for each question, or `None`.

    Returns:
        `x`, `y` and the weights of all tokens, padding without any; or
        `sample_weight`, if they were no strings.

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
        return x, y, sample_weight
    tokenizer = model.tokenizer
    x, y = _texts(x, "x"), _texts(y, "y")
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
    weights /= weights.mean()
    if sample_weight is not None:
        weights *= _column(sample_weight, len(x))
    return inputs, targets, weights


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


def _texts(strings, field):
    if isinstance(strings, (str, bytes)):
        raise UsageError(
            f"`{field}` must be a list of strings. Received: {strings!r}"[:200],
            field=field,
        )
    texts = [
        string.decode() if isinstance(string, bytes) else string
        for string in strings
    ]
    for text in texts:
        if not isinstance(text, str):
            raise UsageError(
                f"Questions and answers must be strings. Received: {text!r}",
                field=field,
            )
    return texts


def _column(sample_weight, count):
    sample_weight = np.asarray(sample_weight, "float32")
    if sample_weight.size != count:
        raise UsageError(
            f"`sample_weight` must have a number for each of {count} questions."
            f" Received the shape {sample_weight.shape}.",
            field="sample_weight",
        )
    return sample_weight.reshape(count, 1)


def _pad(tokenizer, token_ids, more=0):
    """Pads to a multiple of a length, and some tokens more."""
    width = (more - token_ids.shape[1]) % _LENGTH_STEP
    return np.pad(
        token_ids, ((0, 0), (0, width)), constant_values=tokenizer.pad_id
    )
