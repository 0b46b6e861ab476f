import keras
import numpy as np
import pytest

from tpt_keras.analysis.attention_calls import ATTENTIONS
from tpt_keras.analysis.attention_calls import attention_calls
from tpt_keras.analysis.attention_weights import attention_weights
from tpt_keras.analysis.cells import collect_cells
from tpt_keras.analysis.cells import encode_answers
from tpt_keras.analysis.cells import encode_questions
from tpt_keras.analysis.cells import layer_and_head
from tpt_keras.errors import UsageError
from tpt_keras.models import SequenceToSequence
from tpt_keras.models import Transformer

QUESTIONS = ["What is 1 + 1?", "7/8", "Let z be r(7)."]
ANSWERS = ["2", "7/8", "-3*z"]
SIZES = {
    "hidden_dim": 16,
    "intermediate_dim": 16,
    "num_heads": 2,
    "num_layers": 2,
}


def make_model(preset="tp_transformer_tiny", **fields):
    keras.utils.set_random_seed(3)
    return Transformer.from_preset(preset, **{**SIZES, **fields})


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture(scope="module")
def token_ids(model):
    return encode_questions(model, QUESTIONS), encode_answers(model, ANSWERS)


def numpy(tensor):
    return keras.ops.convert_to_numpy(tensor)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_what_an_attention_does(model, token_ids, attention):
    questions, answers = token_ids
    targets = questions if attention == "encoder" else answers
    sources = answers if attention == "decoder" else questions
    calls = attention_calls(model, attention, *token_ids)
    assert len(calls) == 2
    for call in calls:
        weights, fillers = call.weights(), call.fillers()
        assert weights.shape == (3, 2, targets.shape[1], sources.shape[1])
        np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-5)
        is_padding = sources == model.tokenizer.pad_id
        assert not np.any(np.moveaxis(weights, 3, 1)[is_padding])
        np.testing.assert_allclose(
            np.einsum("bhts,bshv->bthv", weights, call.values()),
            fillers,
            atol=1e-5,
        )
        # Bound and mapped, it is what the layer gives.
        output = call.layer.output_dense(fillers * call.roles())
        np.testing.assert_allclose(
            numpy(output), numpy(call.layer(**call.inputs)), atol=1e-5
        )
        assert call.target_ids is targets
        assert call.source_ids is sources


def test_they_are_the_models_own(model, token_ids):
    calls = attention_calls(model, "cross", *token_ids)
    np.testing.assert_allclose(
        calls[0].states(), numpy(model.encode(token_ids[0])), atol=1e-6
    )
    # What the decoder answers with follows from its last cross-attention.
    [cell] = model.decoder_cells[-1:]
    before, _ = attention_calls(model, "decoder", *token_ids)
    assert before.states().shape == (3, 5, 16)
    assert calls[1].layer is cell.cross_attention


def test_cells_of_several_batches(model, token_ids):
    cells = collect_cells(
        model, "encoder", ["states", "values"], QUESTIONS, batch_size=2
    )
    values = cells["values"]
    assert values.texts == [f"⊢{question}⊣" for question in QUESTIONS]
    assert values.of(values.texts) == list("".join(values.texts))
    assert values.by_text(values.columns.tolist())[1] == [0, 1, 2, 3, 4]
    for layer, call in enumerate(attention_calls(model, "encoder", *token_ids)):
        rows, columns = values.rows, values.columns
        np.testing.assert_allclose(
            values.layers[layer], call.values()[rows, columns], atol=1e-5
        )
        np.testing.assert_allclose(
            cells["states"].layers[layer],
            call.states()[rows, columns],
            atol=1e-5,
        )


@pytest.mark.parametrize(
    ("name", "texts"), [("roles", ANSWERS), ("values", QUESTIONS)]
)
def test_cells_of_either_side(model, name, texts):
    cells = collect_cells(model, "cross", [name], QUESTIONS, ANSWERS)[name]
    assert [text.strip("⊢⊣") for text in cells.texts] == texts


def test_weights_of_one_problem(model):
    problem = attention_weights(model, "7/8", "0.875")
    assert problem["characters"] == {"question": "⊢7/8⊣", "answer": "⊢0.875"}
    shapes = {
        name: np.shape(weights) for name, weights in problem["weights"].items()
    }
    assert shapes == {
        "encoder": (2, 2, 5, 5),
        "decoder": (2, 2, 6, 6),
        "cross": (2, 2, 6, 5),
    }


def test_what_a_variant_does_not_have():
    plain = make_model("transformer")
    ids = encode_questions(plain, QUESTIONS)
    with pytest.raises(UsageError, match=r"'none'.*no roles.*--of=values"):
        attention_calls(plain, "encoder", ids)[0].roles()
    model = make_model("tp_transformer_multi_linear", binding="tensor")
    with pytest.raises(UsageError, match=r"'multi_linear'.*no attention wei"):
        attention_weights(model, "7/8")
    call = attention_calls(model, "encoder", ids)[0]
    output = call.layer.binding.bind_and_map(
        call.fillers(), call.roles(), call.layer.output_dense
    )
    expected = numpy(call.layer(**call.inputs))
    is_real = ids != model.tokenizer.pad_id
    np.testing.assert_allclose(
        numpy(output)[is_real], expected[is_real], atol=1e-5
    )


def test_what_cannot_be_looked_at(model, token_ids):
    lstm = SequenceToSequence.from_preset("lstm", hidden_dim=8)
    with pytest.raises(UsageError, match="SimpleLSTM"):
        attention_calls(lstm, "encoder", token_ids[0])
    with pytest.raises(UsageError, match=r"'self'.*cross, decoder"):
        attention_calls(model, "self", *token_ids)
    assert layer_and_head(model, None, 1) == (1, 0)
    for layer, head in ((3, 1), (0, 1), (1, 3)):
        with pytest.raises(UsageError, match="is from 1 to 2"):
            layer_and_head(model, layer, head)
