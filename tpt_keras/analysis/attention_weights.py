import numpy as np

from tpt_keras.analysis.attention_calls import ATTENTIONS
from tpt_keras.analysis.attention_calls import attention_calls
from tpt_keras.analysis.cells import decode_framed
from tpt_keras.analysis.cells import encode_answers
from tpt_keras.analysis.cells import encode_questions

_DECIMALS = 4


def attention_weights(model, question, answer=None):
    """Which characters take from which, in every attention of a model.

    Args:
        model: A `Transformer`.
        question: A string.
        answer: The string that the decoder is given. Defaults to the model's
            own answer.

    Returns:
        Dict of the `question` and the `answer`; the `characters` of both, as
        the model reads them; and the `weights`, a dict of the attention's name
        to nested lists of numbers of four decimals, `(num_layers, num_heads,
        target_length, source_length)`.

    Raises:
        UsageError: If the model's score has no attention weights, it is no
            `Transformer`, or it cannot read a text.
    """
    questions = encode_questions(model, [question])
    # Before the time that an answer takes.
    attention_calls(model, "encoder", questions)[0].weights()
    if answer is None:
        [answer] = model.solve([question])
    answers = encode_answers(model, [answer])
    return {
        "question": question,
        "answer": answer,
        "characters": {
            name: decode_framed(model, token_ids)[0]
            for name, token_ids in (
                ("question", questions),
                ("answer", answers),
            )
        },
        "weights": {
            attention: [
                _rounded(call.weights()[0])
                for call in attention_calls(
                    model, attention, questions, answers
                )
            ]
            for attention in ATTENTIONS
        },
    }


def _rounded(weights):
    return np.round(weights.astype("float64"), _DECIMALS).tolist()
