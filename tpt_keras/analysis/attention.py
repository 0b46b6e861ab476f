"""Attention weights, roles, values and fillers of a trained model."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.layers import TPMultiHeadAttention
from tpt_keras.models import Transformer
from tpt_keras.typing import Tensor

ATTENTIONS = ("encoder", "decoder", "cross")
# Characters that show the symbols around a text.
START_CHARACTER = "⊢"
END_CHARACTER = "⊣"
# Vectors of the attention's queries; all others are of its keys.
_OF_TARGETS = ("roles", "fillers")


@dataclasses.dataclass(frozen=True)
class AttentionActivations:
    """The activations of one attention layer on a batch.

    Its methods return float32 arrays. `weights` and `roles` raise a
    `UsageError` if the mechanism has no weights, or the binding no roles.

    Args:
        layer: A `TPMultiHeadAttention`.
        inputs: Dict of the keyword arguments of the layer's call.
    """

    layer: TPMultiHeadAttention
    inputs: dict

    def weights(self) -> np.ndarray:
        """Returns the weights, `(batch, num_heads, targets, sources)`."""
        if not self.layer.attention.has_attention_scores:
            raise UsageError("This model's attention has no weights to show.")
        return _array(self.layer(**self.inputs, return_attention_scores=True))

    def roles(self) -> np.ndarray:
        """Returns the roles, `(batch, targets, num_heads, value_dim)`."""
        if not self.layer.binding.has_role:
            raise UsageError(
                "This model's attention binds to no roles. Analyse its values "
                "instead (`of` values).",
                field="of",
            )
        return _array(self.layer(**self.inputs, return_roles=True))

    def states(self) -> np.ndarray:
        """Returns the value map's input, `(batch, sources, hidden_dim)`."""
        return _array([self.inputs["value"]])

    def values(self) -> np.ndarray:
        """Returns the values, `(batch, sources, num_heads, value_dim)`."""
        return _array([self.layer.value_dense(self.inputs["value"])])

    def fillers(self) -> np.ndarray:
        """Returns the fillers, `(batch, targets, num_heads, value_dim)`."""
        query, value = self.inputs["query"], self.inputs["value"]
        filler, _ = self.layer.attention(
            self.layer.query_dense(query),
            self.layer.key_dense(value),
            self.layer.value_dense(value),
            attention_mask=ops.expand_dims(self.inputs["attention_mask"], 1),
            use_causal_mask=self.inputs.get("use_causal_mask", False),
        )
        return _array([filler])


def _array(outputs):
    """Returns the last of a layer's outputs as a float32 array."""
    return ops.convert_to_numpy(ops.cast(outputs[-1], "float32"))


def attention_activations(
    model: Transformer,
    attention: str,
    encoder_token_ids: Tensor,
    decoder_token_ids: Tensor | None = None,
) -> list[AttentionActivations]:
    """Runs a model on a batch and returns the activations of its attention.

    Args:
        model: A `Transformer`.
        attention: `"encoder"`, `"decoder"` (its self-attention) or `"cross"`.
        encoder_token_ids: Array `(batch, source_length)`, the questions.
        decoder_token_ids: Array `(batch, target_length)`, the answers, which
            start with the start symbol. The encoder's attention needs none.

    Returns:
        List of one `AttentionActivations` per layer.

    Raises:
        UsageError: If `attention` is unknown or the model is no `Transformer`.
    """
    check_choice("attention", attention, ATTENTIONS)
    if not isinstance(model, Transformer):
        raise UsageError(
            f"A model of the class {type(model).__name__} cannot be analysed. "
            "Take a model of a Transformer preset."
        )
    questions, answers = encoder_token_ids, decoder_token_ids
    encoder_mask = model.padding_mask(questions)
    cells = model.encoder_cells
    encoder_output, inputs = _run_cells(
        cells,
        model.embed_questions(questions),
        padding_mask=encoder_mask,
    )
    if attention != "encoder":
        cells = model.decoder_cells
        _, inputs = _run_cells(
            cells,
            model.embed_answers(answers),
            encoder_sequence=encoder_output,
            decoder_padding_mask=model.padding_mask(answers),
            encoder_padding_mask=encoder_mask,
        )
    name = "cross_attention" if attention == "cross" else "self_attention"
    return [
        AttentionActivations(getattr(cell, name), of_cell[name])
        for cell, of_cell in zip(cells, inputs)
    ]


def _run_cells(cells, x, **kwargs):
    """Returns the last cell's output, and all cells' attention inputs."""
    inputs = []
    for cell in cells:
        x, of_cell = cell(x, **kwargs, return_attention_inputs=True)
        inputs.append(of_cell)
    return x, inputs


def attention_weights(
    model: Transformer, question: str, answer: str | None = None
) -> dict[str, Any]:
    """Returns the attention weights of all layers and heads on one problem.

    The decoder reads `answer`, by default the model's own. The result is a
    dict of the `question` and the `answer`; `characters`, both as
    `shown_question` and `shown_answer` give them; and `weights`, a dict from
    each attention to nested lists `(num_layers, num_heads, target_length,
    source_length)`.
    """
    question_ids = encode_questions(model, [question])
    # Before the time that an answer takes.
    attention_activations(model, "encoder", question_ids)[0].weights()
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
                each.weights()[0].astype("float64").round(4).tolist()
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
        for name in names:
            collected[name].append(
                [getattr(each, name)()[is_real] for each in activations]
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
    """Returns a question with its start and end, one item for each token.

    It is a string, or a list of words and characters if the model has words.
    """
    if not model.tokenizer.words:
        return f"{START_CHARACTER}{question}{END_CHARACTER}"
    symbols = model.tokenizer.split(question)
    return [START_CHARACTER, *symbols, END_CHARACTER]


def shown_answer(model: keras.Model, answer: str) -> str:
    """Returns an answer with its start, in the order of the model's tokens."""
    symbols = model.tokenizer.split(answer, question=False)
    return START_CHARACTER + "".join(symbols)


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
