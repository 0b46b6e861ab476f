import keras
import numpy as np
import pytest

from tests.refusals import refused
from tpt_keras.analysis.attention import ATTENTIONS
from tpt_keras.analysis.attention import attention_activations
from tpt_keras.analysis.attention import attention_weights
from tpt_keras.analysis.attention import collect_vectors
from tpt_keras.analysis.attention import encode_answers
from tpt_keras.analysis.attention import encode_questions
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


def assert_close(one, other, atol=1e-5):
    one, other = map(keras.ops.convert_to_numpy, (one, other))
    np.testing.assert_allclose(one, other, atol=atol)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_weights_retrieve_the_fillers(model, token_ids, attention):
    questions, answers = token_ids
    targets = questions if attention == "encoder" else answers
    sources = answers if attention == "decoder" else questions
    activations = attention_activations(model, attention, *token_ids)
    assert len(activations) == 2
    for each in activations:
        weights = each["weights"]
        assert weights.shape == (3, 2, targets.shape[1], sources.shape[1])
        np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-5)
        is_padding = sources == model.tokenizer.pad_id
        assert not np.any(np.moveaxis(weights, 3, 1)[is_padding])
        retrieved = np.einsum("bhts,bshv->bthv", weights, each["values"])
        assert_close(retrieved, each["fillers"])


def test_states_are_the_models_own(model, token_ids):
    questions, answers = token_ids
    encoder_output = model.encode(questions)
    cross = attention_activations(model, "cross", *token_ids)
    assert_close(cross[0]["states"], encoder_output)
    # The second cell's input is the first cell's output.
    first, second = model.decoder_cells
    x = first(
        model.embed_answers(answers),
        encoder_output,
        decoder_padding_mask=model.padding_mask(answers),
        encoder_padding_mask=model.padding_mask(questions),
    )
    decoder = attention_activations(model, "decoder", *token_ids)
    assert_close(decoder[1]["states"], second.self_attention_layer_norm(x))


def test_words_and_answers_are_shown_as_the_model_reads_them():
    model = make_model("tp_transformer_numbers")
    problem = attention_weights(model, "What is 1.5?", "-23.45")
    symbols = ["⊢", "What", " ", "is", *" 1.5?⊣"]
    assert problem["characters"] == {"question": symbols, "answer": "⊢-32.45"}
    assert np.shape(problem["weights"]["cross"])[2:] == (7, len(symbols))
    texts, vectors = collect_vectors(
        model, "decoder", ["values"], ["1.5 + 2"], ["-23.45"]
    )
    assert texts == ["⊢-32.45"]
    assert vectors["values"][0].shape[0] == len(texts[0])


def test_vectors_of_several_batches_equal_those_of_one(model, token_ids):
    texts, vectors = collect_vectors(
        model, "encoder", ["states", "values"], QUESTIONS, batch_size=2
    )
    assert texts == [f"⊢{question}⊣" for question in QUESTIONS]
    is_real = token_ids[0] != model.tokenizer.pad_id
    activations = attention_activations(model, "encoder", *token_ids)
    for layer, each in enumerate(activations):
        assert_close(vectors["values"][layer], each["values"][is_real])
        assert_close(vectors["states"][layer], each["states"][is_real])


@pytest.mark.parametrize(
    ("attention", "name", "texts"),
    [
        ("decoder", "values", ["⊢2", "⊢7/8", "⊢-3*z"]),
        ("cross", "roles", ["⊢2", "⊢7/8", "⊢-3*z"]),
        ("cross", "values", [f"⊢{question}⊣" for question in QUESTIONS]),
    ],
)
def test_vectors_are_those_of_their_side(model, attention, name, texts):
    found, vectors = collect_vectors(
        model, attention, [name], QUESTIONS, ANSWERS
    )
    assert found == texts
    assert len(vectors[name][1]) == sum(map(len, texts))


def test_variants_refuse_activations_that_they_lack():
    plain = make_model("transformer")
    with pytest.raises(UsageError) as refusal:
        collect_vectors(plain, "encoder", ["roles"], QUESTIONS)
    assert refusal.value.field == "of"
    assert "NoBinding" not in str(refusal.value)
    model = make_model("tp_transformer_multi_linear", binding="tensor")
    with pytest.raises(UsageError):
        attention_weights(model, "7/8")
    # Fillers and roles are there all the same.
    ids = encode_questions(model, QUESTIONS)
    [first, _] = attention_activations(model, "encoder", ids)
    assert first["fillers"].shape == first["roles"].shape


def test_unknown_models_and_attentions_are_refused(model, token_ids):
    lstm = SequenceToSequence.from_preset("lstm", hidden_dim=8)
    with pytest.raises(UsageError):
        attention_activations(lstm, "encoder", token_ids[0])
    with refused("attention"):
        attention_activations(model, "self", *token_ids)
