"""Questions and answers as strings, where Keras expects arrays."""

import keras
import numpy as np

from tpt_keras.errors import UsageError

# Lengths are padded to multiples, so that there are few shapes to compile.
_LENGTH_STEP = 16


def encode_pairs(model, x, y):
    """Encodes strings for `fit` and `evaluate`.

    Args:
        model: A `SequenceToSequence`.
        x: List or array of questions, or a `tf.data.Dataset` of batches of
            questions and answers. Anything else is left as it is.
        y: List or array of answers, if `x` is no dataset.

    Returns:
        `x`, `y` and a dict of more arguments: `sample_weight`, if they were
        strings.

    Raises:
        UsageError: If a string cannot be encoded, or some inputs are strings
            and others are not.
    """
    if _is_dataset_of_strings(x):
        return _encoded_dataset(model, x), None, {}
    if isinstance(x, dict) or not (_has_strings(x) and _has_strings(y)):
        refuse_strings((x, y))
        return x, y, {}
    x, y, sample_weight = _encode(model, x, y)
    return x, y, {"sample_weight": sample_weight}


def refuse_strings(inputs):
    """Raises an error if there are strings in place of token ids.

    Args:
        inputs: Array, or arrays nested in any way.

    Raises:
        UsageError: If one of them holds strings.
    """
    if _is_dataset_of_strings(inputs) or any(
        map(_has_strings, keras.tree.flatten(inputs))
    ):
        raise UsageError(
            "Received strings where token ids are expected. Answer questions "
            "with `solve`, or encode them with "
            "`model.tokenizer.encode_questions`; `fit` and `evaluate` take "
            "lists of questions and of answers."
        )


def _has_strings(x):
    if isinstance(x, (list, tuple)):
        return bool(x) and _has_strings(x[0])
    if isinstance(x, np.ndarray) and x.dtype.kind == "O":
        return bool(x.size) and _has_strings(x.flat[0])
    kind = getattr(getattr(x, "dtype", None), "kind", None)
    return isinstance(x, (str, bytes)) or kind in ("U", "S", "T")


def _is_dataset_of_strings(x):
    spec = getattr(x, "element_spec", None)
    return any(
        getattr(each, "dtype", None) == "string"
        for each in keras.tree.flatten(spec)
    )


def _encode(model, questions, answers):
    """Token ids of a batch: the inputs, the targets and their weights."""
    tokenizer, config = model.tokenizer, model.config
    questions, answers = map(_texts, (questions, answers))
    encoder_token_ids = tokenizer.encode_questions(
        questions, config.max_question_length
    )
    token_ids = tokenizer.encode_batch(answers)
    encoder_token_ids, token_ids = (
        np.pad(
            ids,
            ((0, 0), (0, (more - ids.shape[1]) % _LENGTH_STEP)),
            constant_values=tokenizer.pad_id,
        )
        for ids, more in ((encoder_token_ids, 0), (token_ids, 1))
    )
    inputs = {
        "encoder_token_ids": encoder_token_ids,
        "decoder_token_ids": token_ids[:, :-1],
    }
    targets = token_ids[:, 1:]
    weights = (targets != tokenizer.pad_id).astype("float32")
    # Keras divides by the number of all tokens, padding included.
    return inputs, targets, weights / weights.mean()


def _texts(strings):
    return [s.decode() if isinstance(s, bytes) else str(s) for s in strings]


def _encoded_dataset(model, dataset):
    # It imports TensorFlow, as the dataset does.
    from tpt_keras.tokenizers.graph_tokenizer import map_in_python

    inputs = {"encoder_token_ids": "int32", "decoder_token_ids": "int32"}
    return map_in_python(
        dataset,
        lambda questions, answers: _encode(model, questions, answers),
        (inputs, "int32", "float32"),
    )
