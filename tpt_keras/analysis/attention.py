"""Attention weights, roles, values and fillers of a trained model."""

import dataclasses

import numpy as np
from keras import ops

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.layers import TPMultiHeadAttention
from tpt_keras.layers import merge_masks
from tpt_keras.models import Transformer

ATTENTIONS = ("encoder", "decoder", "cross")
# Characters that show the symbols around a text.
START_CHARACTER = "⊢"
END_CHARACTER = "⊣"
# Vectors of the attention's queries; all others are of its keys.
_OF_TARGETS = ("roles", "fillers")
_DECIMALS = 4


@dataclasses.dataclass(frozen=True)
class AttentionActivations:
    """The activations of one attention layer on a batch.

    Its methods return float32 arrays.

    Args:
        layer: A `TPMultiHeadAttention`.
        inputs: Dict of the keyword arguments of the layer's call.
        target_ids: Token ids of the queries, `(batch, target_length)`.
        source_ids: Token ids of the keys and values, `(batch, source_length)`.
    """

    layer: TPMultiHeadAttention
    inputs: dict
    target_ids: np.ndarray
    source_ids: np.ndarray

    def weights(self):
        """Returns the weights, `(batch, num_heads, targets, sources)`.

        Raises:
            UsageError: If the attention mechanism has no weights.
        """
        if not self.layer.attention.has_weights:
            raise UsageError(
                f"The {type(self.layer.attention).__name__} of "
                "this model has no attention weights."
            )
        return _array(self.layer(**self.inputs, return_attention_scores=True))

    def roles(self):
        """Returns the fillers' roles, `(batch, targets, num_heads, value_dim)`.

        Raises:
            UsageError: If the binding has no roles.
        """
        if not self.layer.binding.has_role:
            raise UsageError(
                f"The {type(self.layer.binding).__name__} of this model has no "
                "roles. Analyse its values instead.",
                remedy=("roles", {"of": "values"}),
            )
        return _array(self.layer(**self.inputs, return_roles=True))

    def states(self):
        """Returns the value map's input, `(batch, sources, hidden_dim)`."""
        return _array([self.inputs["value"]])

    def values(self):
        """Returns the values, `(batch, sources, num_heads, value_dim)`."""
        return _array([self.layer.value_dense(self.inputs["value"])])

    def fillers(self):
        """Returns the fillers, `(batch, targets, num_heads, value_dim)`."""
        query, value = self.inputs["query"], self.inputs["value"]
        filler, _ = self.layer.attention(
            self.layer.query_dense(query),
            self.layer.key_dense(value),
            self.layer.value_dense(value),
            attention_mask=merge_masks(
                None, None, None, self.inputs["attention_mask"]
            ),
            use_causal_mask=self.inputs.get("use_causal_mask", False),
        )
        return _array([filler])


def _array(outputs):
    """Returns the last of a layer's outputs as a float32 array."""
    return ops.convert_to_numpy(ops.cast(outputs[-1], "float32"))


def attention_activations(
    model, attention, encoder_token_ids, decoder_token_ids=None
):
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
    x = model.embedding(questions)
    found = []
    for cell in model.encoder_cells:
        x, inputs = cell(
            x, padding_mask=encoder_mask, return_attention_inputs=True
        )
        found.append((cell, inputs, "self_attention", questions, questions))
    if attention != "encoder":
        name = "cross" if attention == "cross" else "self"
        source_ids = questions if attention == "cross" else answers
        encoder_output, x = x, model.embedding(answers)
        found = []
        for cell in model.decoder_cells:
            x, inputs = cell(
                x,
                encoder_output,
                decoder_padding_mask=model.padding_mask(answers),
                encoder_padding_mask=encoder_mask,
                return_attention_inputs=True,
            )
            found.append(
                (cell, inputs, f"{name}_attention", answers, source_ids)
            )
    return [
        AttentionActivations(getattr(cell, name), inputs[name], *token_ids)
        for cell, inputs, name, *token_ids in found
    ]


def attention_weights(model, question, answer=None):
    """Returns the attention weights of all layers and heads on one problem.

    Args:
        model: A `Transformer`.
        question: A string.
        answer: The decoder's input, a string. Defaults to the model's own
            answer.

    Returns:
        Dict of the `question` and the `answer`; `characters`, both texts with
        their start and end symbols; and `weights`, a dict from each attention
        to nested lists `(num_layers, num_heads, target_length,
        source_length)`, rounded to four decimals.

    Raises:
        UsageError: If the attention mechanism has no weights, the model is no
            `Transformer`, or it cannot read a text.
    """
    questions = encode_questions(model, [question])
    # Before the time that an answer takes.
    attention_activations(model, "encoder", questions)[0].weights()
    if answer is None:
        [answer] = model.solve([question])
    answers = encode_answers(model, [answer])
    return {
        "question": question,
        "answer": answer,
        "characters": {
            "question": _decode_framed(model, questions)[0],
            "answer": _decode_framed(model, answers)[0],
        },
        "weights": {
            attention: [
                _rounded(each.weights()[0])
                for each in attention_activations(
                    model, attention, questions, answers
                )
            ]
            for attention in ATTENTIONS
        },
    }


def _rounded(weights):
    return np.round(weights.astype("float64"), _DECIMALS).tolist()


@dataclasses.dataclass(frozen=True)
class CharacterVectors:
    """Vectors of an attention, one for each character and layer.

    Args:
        texts: List of the texts, with their start and end symbols.
        rows: Integer array `(characters,)`, the index of a character's text.
        columns: Integer array `(characters,)`, its position in the text.
        layers: List of a float32 array `(characters, ...)` for every layer.
    """

    texts: list
    rows: np.ndarray
    columns: np.ndarray
    layers: list

    def flatten(self, by_text):
        """Flattens one sequence per text to one list over all characters.

        Args:
            by_text: List of a sequence for every text, as long as the text.

        Returns:
            List `(characters,)`.
        """
        return [
            by_text[row][column] for row, column in zip(self.rows, self.columns)
        ]

    def by_text(self, values):
        """Splits one value per character into a list for every text.

        Args:
            values: Sequence `(characters,)`.

        Returns:
            List of a list for every text. A character without a value has
            `None`.
        """
        texts = [[None] * len(text) for text in self.texts]
        for row, column, value in zip(self.rows, self.columns, values):
            texts[row][column] = value
        return texts


def collect_vectors(
    model, attention, names, questions, answers=None, batch_size=32
):
    """Collects vectors of all characters of many texts.

    Args:
        model: A `Transformer`.
        attention: See `attention_activations`.
        names: The vectors to collect, all of one side of the attention:
            `"roles"` and `"fillers"` of its queries, or `"states"` and
            `"values"` of its keys.
        questions: List of strings.
        answers: List of as many strings, the decoder's input. The encoder's
            attention needs none.
        batch_size: Number of questions per batch.

    Returns:
        Dict from each name to its `CharacterVectors`.

    Raises:
        UsageError: See `attention_activations` and `AttentionActivations`;
            also if the model cannot read a text.
    """
    texts, rows, columns = [], [], []
    collected = {name: [] for name in names}
    for start in range(0, len(questions), batch_size):
        batch = slice(start, start + batch_size)
        ids = [encode_questions(model, questions[batch])]
        if attention != "encoder":
            ids.append(encode_answers(model, answers[batch]))
        activations = attention_activations(model, attention, *ids)
        first = activations[0]
        is_target = names[0] in _OF_TARGETS
        token_ids = first.target_ids if is_target else first.source_ids
        is_real = token_ids != model.tokenizer.pad_id
        batch_rows, batch_columns = np.nonzero(is_real)
        rows.append(batch_rows + start)
        columns.append(batch_columns)
        texts += _decode_framed(model, token_ids)
        for name in names:
            collected[name].append(
                [getattr(each, name)()[is_real] for each in activations]
            )
    rows, columns = np.concatenate(rows), np.concatenate(columns)
    return {
        name: CharacterVectors(
            texts, rows, columns, list(map(np.concatenate, zip(*batches)))
        )
        for name, batches in collected.items()
    }


def encode_questions(model, questions):
    """Encodes questions within the model's longest question.

    Args:
        model: A `SequenceToSequence`.
        questions: List of strings.

    Returns:
        Integer array `(batch, length)`.

    Raises:
        UsageError: If the model cannot read a question.
    """
    return model.tokenizer.encode_questions(
        questions, max_length=model.config.max_question_length
    )


def encode_answers(model, answers):
    """Encodes answers as the decoder reads them, without their end symbols."""
    tokenizer = model.tokenizer
    token_ids = tokenizer.encode_batch(answers)
    is_end = token_ids == tokenizer.end_id
    return np.where(is_end, tokenizer.pad_id, token_ids)[:, :-1]


def _decode_framed(model, token_ids):
    """Decodes token ids, and shows the start and end symbols."""
    tokenizer = model.tokenizer
    characters = list(tokenizer.vocabulary)
    characters[tokenizer.pad_id] = ""
    characters[tokenizer.start_id] = START_CHARACTER
    characters[tokenizer.end_id] = END_CHARACTER
    return ["".join(characters[i] for i in row) for row in token_ids]
