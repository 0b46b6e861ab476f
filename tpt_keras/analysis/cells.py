import dataclasses

import numpy as np

from tpt_keras.analysis.attention_calls import attention_calls
from tpt_keras.errors import UsageError

# How the symbols around a text are written.
START_CHARACTER = "⊢"
END_CHARACTER = "⊣"
# Which side of an attention they belong to.
OF_TARGETS = ("roles", "fillers")
OF_SOURCES = ("states", "values")


@dataclasses.dataclass(frozen=True)
class Cells:
    """Vectors of an attention's cells: one of each character and layer.

    Args:
        texts: List of the texts, each with its start and end symbol.
        rows: Integer array `(cells,)`: which text a cell is in.
        columns: Integer array `(cells,)`: at which of its characters.
        layers: List of a float32 array `(cells, ...)` for every layer.
    """

    texts: list
    rows: np.ndarray
    columns: np.ndarray
    layers: list

    def of(self, by_character):
        """What belongs to the cells, of what belongs to the characters.

        Args:
            by_character: List of a sequence for every text, as long as it.

        Returns:
            List `(cells,)`.
        """
        return [
            by_character[row][column]
            for row, column in zip(self.rows, self.columns)
        ]

    def by_text(self, of_cells):
        """What belongs to the cells, as a list for every text."""
        texts = [[None] * len(text) for text in self.texts]
        for row, column, value in zip(self.rows, self.columns, of_cells):
            texts[row][column] = value
        return texts


def collect_cells(
    model, attention, names, questions, answers=None, batch_size=32
):
    """Vectors of all characters of some texts.

    Args:
        model: A `Transformer`.
        attention: See `attention_calls`.
        names: What to collect, of one side of the attention: the queries'
            `"roles"` and `"fillers"`, or `"states"` and `"values"` of what
            they attend to.
        questions: List of strings.
        answers: List of as many strings, which the decoder is given; not
            needed for the encoder.
        batch_size: Number of questions computed together.

    Returns:
        Dict of the names to `Cells`.

    Raises:
        UsageError: See `attention_calls` and `AttentionCall`, or if the model
            cannot read a text.
    """
    texts, rows, columns = [], [], []
    collected = {name: [] for name in names}
    for start in range(0, len(questions), batch_size):
        batch = slice(start, start + batch_size)
        ids = [encode_questions(model, questions[batch])]
        if attention != "encoder":
            ids.append(encode_answers(model, answers[batch]))
        calls = attention_calls(model, attention, *ids)
        of_targets = names[0] in OF_TARGETS
        token_ids = calls[0].target_ids if of_targets else calls[0].source_ids
        is_real = token_ids != model.tokenizer.pad_id
        batch_rows, batch_columns = np.nonzero(is_real)
        rows.append(batch_rows + start)
        columns.append(batch_columns)
        texts += decode_framed(model, token_ids)
        for name in names:
            collected[name].append(
                [getattr(call, name)()[is_real] for call in calls]
            )
    rows, columns = np.concatenate(rows), np.concatenate(columns)
    return {
        name: Cells(
            texts, rows, columns, list(map(np.concatenate, zip(*batches)))
        )
        for name, batches in collected.items()
    }


def encode_questions(model, questions):
    """Token ids `(batch, length)` of questions that the model takes."""
    return model.tokenizer.encode_questions(
        questions, max_length=model.config.max_question_length
    )


def encode_answers(model, answers):
    """Token ids `(batch, length)` of answers as the decoder reads them.

    The start symbol and the characters, each where the next one is foreseen.
    """
    tokenizer = model.tokenizer
    token_ids = tokenizer.encode_batch(answers)
    is_end = token_ids == tokenizer.end_id
    return np.where(is_end, tokenizer.pad_id, token_ids)[:, :-1]


def decode_framed(model, token_ids):
    """The texts of token ids, with characters for the start and the end.

    Args:
        model: A `SequenceToSequence`.
        token_ids: Array `(batch, length)`, padded at the end.

    Returns:
        List of as many strings.
    """
    tokenizer = model.tokenizer
    characters = list(tokenizer.vocabulary)
    characters[tokenizer.pad_id] = ""
    characters[tokenizer.start_id] = START_CHARACTER
    characters[tokenizer.end_id] = END_CHARACTER
    return ["".join(characters[i] for i in row) for row in token_ids]


def layer_and_head(model, layer, head):
    """Checks which layer and head are meant.

    Args:
        model: A `Transformer`.
        layer: Number of the layer from 1 on, or `None` for the last.
        head: Number of the head from 1 on.

    Returns:
        Their indices, from 0 on.

    Raises:
        UsageError: If the model has no such layer or head.
    """
    config = model.config
    layer = config.num_layers if layer is None else layer
    for name, number, count in (
        ("layer", layer, config.num_layers),
        ("head", head, config.num_heads),
    ):
        if not 1 <= number <= count:
            raise UsageError(
                f"The model has no {name} {number}: --{name} is from 1 to "
                f"{count}."
            )
    return layer - 1, head - 1
