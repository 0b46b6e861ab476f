"""Models whose tokens are words, from strings to strings."""

import itertools

import keras
import pytest

from tests.models.transformer_test import uncached_greedy
from tests.refusals import refused
from tpt_keras.decoding import Generator
from tpt_keras.models import PRESETS
from tpt_keras.models import Transformer
from tpt_keras.models.stored import load_model
from tpt_keras.tokenizers import vocabulary_of

PRIMITIVES = ("walk", "look", "jump", "run", "turn", "né")
TIMES = ("once", "twice", "thrice", "again", "and", "then", "after", "left")
QUESTIONS = [
    " ".join(words)
    for length in (3, 4)
    for words in itertools.product(PRIMITIVES, TIMES, repeat=2)
    for words in [words[:length]]
]
QUESTIONS = list(dict.fromkeys(QUESTIONS))[:500]
ANSWERS = [
    " ".join(f"I_{word.upper()}" for word in question.split()[::-1])
    for question in QUESTIONS
]
VOCABULARY = vocabulary_of([*QUESTIONS, *ANSWERS], tokens="words")


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model():
    """A model that has learned for some steps, so that its answers differ."""
    keras.utils.set_random_seed(3)
    config = PRESETS["tp_transformer_tiny"].replace(
        vocabulary=VOCABULARY,
        hidden_dim=32,
        intermediate_dim=32,
        num_layers=1,
        max_question_length=5,
        max_answer_length=4,
    )
    model = Transformer(config)
    model.compile(keras.optimizers.Adam(3e-3))
    model.fit(QUESTIONS, ANSWERS, batch_size=25, epochs=5, verbose=0)
    return model


def test_cached_answers_are_the_uncached(model):
    assert len(QUESTIONS) == 500
    answers = model.solve(QUESTIONS)
    assert len(set(answers)) > 20
    token_ids = model.tokenizer.encode_questions(QUESTIONS)
    expected = uncached_greedy(model, token_ids, max_length=4)
    assert answers == list(map(model.tokenizer.decode, expected))


def test_fit_save_and_load(model, tmp_path):
    loss, *_ = model.evaluate(QUESTIONS, ANSWERS, verbose=0)
    assert loss < 2.0
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras")
    assert loaded.config.vocabulary == VOCABULARY
    found = loaded.solve(QUESTIONS[:50])
    assert found == model.solve(QUESTIONS[:50])
    # A blank more is the same question.
    assert found == loaded.solve([f"\t{x}  " for x in QUESTIONS[:50]])
    with refused("max_answer_length", part="5 words"):
        model.fit(["jump twice"], ["né né né né né"], verbose=0)


def test_unknown_words_have_a_status(model):
    with pytest.warns(UserWarning, match=r"'hop'.*UNKNOWN_WORD"):
        assert model.solve(["hop twice", "jump"])[0] == ""
    generator = Generator(model)
    statuses = [x.status for x in generator.answer(["jump", "hop", "\u3000"])]
    assert statuses == ["OK", "UNKNOWN_WORD", "EMPTY"]
    scored = generator.score(["jump"] * 4, ["né  né", "né né", "", "hop"])
    assert scored[0].log_prob == scored[1].log_prob < 0
    assert scored[2].log_prob < 0
    assert scored[3].status == "UNKNOWN_WORD"


@pytest.mark.skipif(
    keras.backend.backend() == "jax", reason="JAX exports neither"
)
def test_exports_answer_as_the_model_does(model, tmp_path):
    if keras.backend.backend() == "tensorflow":
        from tpt_keras.serving import SavedModel
        from tpt_keras.serving.export import export

        exported = SavedModel(export(model, tmp_path))
    else:
        pytest.importorskip("onnxscript")
        from tpt_keras.serving import OnnxModel
        from tpt_keras.serving.onnx_export import export_onnx

        exported = OnnxModel(export_onnx(model, tmp_path))
    odd = ["jump\xa0twice", " \t", "hop", "né " * 6, "\u2028né\u3000né\n"]
    questions = [*QUESTIONS, *odd]
    found = exported.answer(questions)
    expected = Generator(model).answer(questions)
    for answer, other in zip(found, expected):
        assert (answer.text, answer.status) == (other.text, other.status)
    given = [" \xa0".join(answer.text.split()) for answer in expected]
    scored = exported.score(questions, given)
    for answer, other in zip(scored, expected):
        assert answer.status == other.status
        assert answer.log_prob == pytest.approx(other.log_prob, abs=1e-4)
