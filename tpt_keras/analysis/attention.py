"""Attention weights, roles, values and fillers of a trained model."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.models import Transformer

ATTENTIONS = ("encoder", "decoder", "cross")
# Characters that show the symbols around a text.
START_CHARACTER = "⊢"
END_CHARACTER = "⊣"
# Vectors of the attention's queries; all others are of its keys.
_OF_TARGETS = ("roles", "fillers")


def attention_activations(
    model: Transformer,
    attention: str,
    encoder_token_ids: np.ndarray,
    decoder_token_ids: np.ndarray | None = None,
) -> list[dict[str, np.ndarray]]:
    """Runs a model on a batch and returns the activations of its attention.

    Args:
        model: A `Transformer`.
        attention: `"encoder"`, `"decoder"` (its self-attention) or `"cross"`.
        encoder_token_ids: Array `(batch, source_length)`, the questions.
        decoder_token_ids: Array `(batch, target_length)`, the answers, which
            start with the start symbol. The encoder's attention needs none.

    Returns:
        List of a dict for each layer, from names to float32 arrays: the
        attention's `weights` `(batch, num_heads, targets, sources)`, `roles`
        and `fillers` `(batch, targets, num_heads, value_dim)`, if there are
        any; its `values` `(batch, sources, num_heads, value_dim)`; and its
        `states`, which the value map reads, `(batch, sources, hidden_dim)`.

    Raises:
        UsageError: If `attention` is unknown or the model is no `Transformer`.
    """
    check_choice("attention", attention, ATTENTIONS)
    if not isinstance(model, Transformer):
        raise UsageError(
            f"A model of the class {type(model).__name__} cannot be analysed. "
            "Take a model of a Transformer preset."
        )
    encoder_mask = model.padding_mask(encoder_token_ids)
    encoder_output, activations = _run_cells(
        model.encoder_cells,
        "self_attention",
        model.embed_questions(encoder_token_ids),
        padding_mask=encoder_mask,
    )
    if attention != "encoder":
        _, activations = _run_cells(
            model.decoder_cells,
            "cross_attention" if attention == "cross" else "self_attention",
            model.embed_answers(decoder_token_ids),
            encoder_sequence=encoder_output,
            decoder_padding_mask=model.padding_mask(decoder_token_ids),
            encoder_padding_mask=encoder_mask,
        )
    return activations


def _run_cells(cells, name, x, **inputs):
    activations = []
    for cell in cells:
        if name == "cross_attention":
            states = inputs["encoder_sequence"]
        else:
            states = cell.self_attention_layer_norm(x)
        values = getattr(cell, name).value_dense(states)
        x, intermediates = cell(x, **inputs, return_intermediates=True)
        found = {**intermediates[name], "states": states, "values": values}
        activations.append(
            {
                name: ops.convert_to_numpy(ops.cast(tensor, "float32"))
                for name, tensor in found.items()
            }
        )
    return x, activations


def _check(activations, names):
    if "weights" in names and "weights" not in activations[0]:
        raise UsageError("This model's attention has no weights to show.")
    if "roles" in names and "roles" not in activations[0]:
        raise UsageError(
            "This model's attention binds to no roles. Analyse its values "
            "instead (`of` values).",
            field="of",
        )


def attention_weights(
    model: Transformer, question: str, answer: str | None = None
) -> dict[str, Any]:
    """Returns the attention weights of all layers and heads on one problem.

    The answer defaults to the model's own. The result has the `question` and
    the `answer`; `characters`, both as `shown_question` and `shown_answer` give
    them; and `weights`, a dict from each attention to nested lists
    `(num_layers, num_heads, target_length, source_length)`.
    """
    question_ids = encode_questions(model, [question])
    # Before the time that an answer takes.
    _check(attention_activations(model, "encoder", question_ids), ["weights"])
    if answer is None:
        [answer] = model.solve([question])
    answer_ids = encode_answers(model, [answer])
    return {
        "question": question,
        "answer": answer,
        "characters": {
            "question": shown_question(model, question),
            "answer": shown_answer(model, answer),
        },
        "weights": {
            attention: [
                each["weights"][0].astype("float64").round(4).tolist()
                for each in attention_activations(
                    model, attention, question_ids, answer_ids
                )
            ]
            for attention in ATTENTIONS
        },
    }


def collect_vectors(
    model: Transformer,
    attention: str,
    names: Sequence[str],
    questions: Sequence[str],
    answers: Sequence[str] = (),
    batch_size: int = 32,
) -> tuple[list[str | list[str]], dict[str, list[np.ndarray]]]:
    """Collects vectors of all tokens of many texts.

    The `names` are of one side of the attention: `"roles"` and `"fillers"` of
    its queries, or `"states"` and `"values"` of its keys. Returns the texts
    as `shown_question` and `shown_answer` give them, and a dict from each name
    to a list of a float32 array `(tokens of all texts, ...)` for every layer.
    """
    of_answers = attention == "decoder" or (
        attention == "cross" and names[0] in _OF_TARGETS
    )
    collected = {name: [] for name in names}
    for start in range(0, len(questions), batch_size):
        batch = slice(start, start + batch_size)
        ids = [encode_questions(model, questions[batch])]
        if attention != "encoder":
            ids.append(encode_answers(model, answers[batch]))
        is_real = ids[of_answers] != model.tokenizer.pad_id
        activations = attention_activations(model, attention, *ids)
        _check(activations, names)
        for name in names:
            collected[name].append(
                [each[name][is_real] for each in activations]
            )
    texts: list[str | list[str]]
    if of_answers:
        texts = [shown_answer(model, answer) for answer in answers]
    else:
        texts = [shown_question(model, question) for question in questions]
    return texts, {
        name: list(map(np.concatenate, zip(*batches)))
        for name, batches in collected.items()
    }


def shown_question(model: keras.Model, question: str) -> str | list[str]:
    """Returns a question with its start and end.

    It is a string, or a list of tokens if the model has words.
    """
    tokenizer = model.tokenizer
    if not (tokenizer.words or tokenizer.separator):
        return f"{START_CHARACTER}{question}{END_CHARACTER}"
    symbols = tokenizer.split(question)
    return [START_CHARACTER, *symbols, END_CHARACTER]


def shown_answer(model: keras.Model, answer: str) -> str | list[str]:
    """Returns an answer with its start, in the order of the model's tokens.

    It is a string, or a list if the tokens are words.
    """
    symbols = [START_CHARACTER, *model.tokenizer.split(answer, question=False)]
    return symbols if model.tokenizer.separator else "".join(symbols)


def encode_questions(
    model: keras.Model, questions: Sequence[str]
) -> np.ndarray:
    """Encodes questions within the model's longest question."""
    return model.tokenizer.encode_questions(
        questions, model.config.max_question_length
    )


def encode_answers(model: keras.Model, answers: Sequence[str]) -> np.ndarray:
    """Encodes answers as the decoder reads them, without their end symbols."""
    tokenizer = model.tokenizer
    token_ids = tokenizer.encode_batch(answers)
    is_end = token_ids == tokenizer.end_id
    return np.where(is_end, tokenizer.pad_id, token_ids)[:, :-1]
