import concurrent.futures
import math
import threading
from unittest import mock

import keras
import numpy as np
import pytest
from keras import ops

from tests.models.transformer_test import QUESTIONS
from tests.models.transformer_test import VOCABULARY
from tests.models.transformer_test import make_answering_model
from tests.models.transformer_test import make_model
from tests.models.transformer_test import set_logit
from tests.refusals import refused
from tpt_keras.answer import Answer
from tpt_keras.decoding import BeamSampler
from tpt_keras.decoding import Generator
from tpt_keras.decoding import TopKSampler
from tpt_keras.errors import UsageError
from tpt_keras.models import Transformer

on_jax = keras.backend.backend() == "jax"


@pytest.fixture(scope="module")
def model():
    return make_answering_model()


@pytest.fixture(scope="module")
def generator(model):
    return Generator(model)


def traced_shapes():
    """Records the shapes of the questions that are traced."""
    return mock.patch.object(
        Transformer,
        "init_cache",
        autospec=True,
        side_effect=Transformer.init_cache,
    )


def shapes_of(calls):
    return [tuple(call.args[1].shape) for call in calls.call_args_list]


@pytest.mark.parametrize("sampler", ["greedy", "beam", "top_k"])
def test_weights_that_are_not_finite_are_refused(sampler):
    model = make_model()
    model.set_weights([np.full_like(w, np.nan) for w in model.get_weights()])
    with pytest.raises(UsageError):
        Generator(model, sampler).answer(QUESTIONS)


def test_answers_have_the_texts_and_log_probs_of_the_tokens(model, generator):
    token_ids = model.tokenizer.encode_questions(QUESTIONS)
    found = generator.generate(token_ids)
    answers = generator.answer(QUESTIONS)
    rows = ops.convert_to_numpy(found["token_ids"])[:, 0]
    assert [a.text for a in answers] == list(map(model.tokenizer.decode, rows))
    np.testing.assert_allclose(
        [a.log_prob for a in answers],
        ops.convert_to_numpy(found["log_probs"])[:, 0],
        rtol=1e-4,
    )
    assert {a.status for a in answers} == {"OK"}
    assert model.solve(QUESTIONS) == [a.text for a in answers]


@pytest.mark.parametrize("sampler", ["greedy", "beam", "top_k"])
def test_scores_are_the_log_probs_of_answers(sampler):
    vocabulary = (*VOCABULARY, "a", "aa", "<unknown>")
    model = make_answering_model(
        seed=20, vocabulary=vocabulary, vocabulary_size=12
    )
    # What is no part of an answer, an id without a symbol too, is likely.
    for token_id in (model.tokenizer.start_id, 9, 10, 11):
        set_logit(model, token_id, 9.0)
    generator = Generator(model, sampler)
    found = [
        (question, each)
        for question, answer in zip(QUESTIONS, generator.answer(QUESTIONS))
        for each in (answer, *answer.alternatives)
    ]
    questions, answers = zip(*found)
    texts = [answer.text for answer in answers]
    assert len(set(zip(questions, texts))) == len(texts)
    lengths = set(map(len, texts))
    assert min(lengths) < max(lengths) == generator.max_length
    scored = generator.score(questions, texts, batch_size=3)
    assert [a.text for a in scored] == texts
    np.testing.assert_allclose(
        [a.log_prob for a in scored],
        [a.log_prob for a in answers],
        rtol=1e-5,
        atol=1e-5,
    )


def test_an_answer_that_cannot_be_scored_does_not_affect_others(generator):
    questions = ["1+2", "1+2", "", "1+2", "1+2", "2"]
    answers = ["", "é", "1", "1" * 100, "\ud800", b"2"]
    statuses = [
        *("OK", "UNKNOWN_CHARACTER", "EMPTY", "TOO_LONG", "INVALID_UTF8"),
        "OK",
    ]
    scored = generator.score(questions, answers)
    assert [answer.status for answer in scored] == statuses
    [first] = generator.score(["1+2"], [""])
    np.testing.assert_allclose(
        scored[0].log_prob, first.log_prob, rtol=1e-5, atol=1e-5
    )
    assert scored[1] == Answer("é", None, "UNKNOWN_CHARACTER")
    with refused("answers"):
        generator.score(questions, answers[1:])


def test_order_and_batch_size_do_not_matter(generator):
    texts = [a.text for a in generator.answer(QUESTIONS)]
    assert len(set(texts)) > 2
    backwards = generator.answer(QUESTIONS[::-1], batch_size=3)
    assert [a.text for a in backwards] == texts[::-1]
    assert generator.answer([]) == []


def test_decodes_questions_of_similar_lengths_together(generator):
    with mock.patch.object(
        generator, "generate_on_batch", side_effect=generator.generate_on_batch
    ) as generate:
        generator.answer(["1+1+1", "1", "", "1+1+1+1", "2"], batch_size=2)
    shapes = [call.args[0].shape for call in generate.call_args_list]
    assert shapes == [(2, 3), (2, 9)]


def test_bad_question_does_not_affect_others(generator):
    questions = ["1+2", "", "1" * 13, "1+4", b"\xff", "\ud800", b"2"]
    answers = generator.answer(questions)
    assert [a.status for a in answers] == [
        "OK",
        "EMPTY",
        "TOO_LONG",
        "UNKNOWN_CHARACTER",
        "INVALID_UTF8",
        "INVALID_UTF8",
        "OK",
    ]
    assert answers[1] == Answer("", None, "EMPTY")
    texts = [a.text for a in generator.answer(["1+2", "2"])]
    assert [answers[0].text, answers[-1].text] == texts


def test_solve_warns_once_of_all_bad_questions(model):
    with pytest.warns(UserWarning, match="'4'.*EMPTY") as warned:
        answers = model.solve(["1+4", "1+2", ""])
    [warning] = [w for w in warned if w.category is UserWarning]
    assert warning.filename == __file__
    assert answers == ["", *model.solve(["1+2"]), ""]


@pytest.mark.slow
def test_beams_are_alternatives(model):
    # There are 5 answers of one token. The others are impossible.
    generator = Generator(model, BeamSampler(8), max_length=1)
    for best in generator.answer(QUESTIONS):
        log_probs = [best.log_prob, *(a.log_prob for a in best.alternatives)]
        assert len(log_probs) == len(VOCABULARY) - 2
        assert sorted(log_probs, reverse=True) == log_probs


@pytest.mark.slow
def test_sampled_answers_do_not_depend_on_the_batch(model):
    generator = Generator(model, TopKSampler(k=4, temperature=2.0, seed=1))
    together = generator.answer(QUESTIONS)
    alone = [generator.answer([question])[0] for question in QUESTIONS]
    assert [a.text for a in alone] == [a.text for a in together]
    other = Generator(model, TopKSampler(k=4, temperature=2.0, seed=2))
    assert [a.text for a in other.answer(QUESTIONS)] != [
        a.text for a in together
    ]


@pytest.mark.slow
def test_threads_share_a_new_model():
    """Two samplers, each compiled by whichever thread is first."""

    def make():
        model = make_answering_model()
        return model.solve, Generator(model, BeamSampler(2), 3).answer

    def texts(answers):
        return [getattr(answer, "text", answer) for answer in answers]

    expected = [texts(answer(QUESTIONS)) for answer in make()]
    answers = make() * 2
    start = threading.Barrier(4)

    def answer(number):
        start.wait()
        return texts(answers[number](QUESTIONS))

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        found = list(threads.map(answer, range(4)))
    assert found == expected * 2


@pytest.mark.skipif(not on_jax, reason="Others do not.")
def test_compiles_few_shapes_on_jax(model):
    generator = Generator(model)
    with traced_shapes() as traced:
        for questions in (["1"], ["1+1+1"], ["1+1+1+1+1+1+"]):
            generator.answer(questions)
        for count in (3, 4):
            generator.answer(["1"] * count)
    # The longest question has 12 characters, a start and an end.
    assert shapes_of(traced) == [(1, 14), (4, 14)]


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="Others do not."
)
def test_compiles_once_on_tensorflow(model):
    generator = Generator(model)
    with traced_shapes() as traced:
        for questions in (["1"], ["1", "2"], ["33+21+0+1"], ["1+1", "2"]):
            generator.answer(questions)
    # A first question alone is not worth tracing.
    assert shapes_of(traced) == [(1, 3), (None, None)]


def test_no_rows(generator):
    found = generator.generate_on_batch(np.zeros((0, 5)))
    assert found["token_ids"].shape == (0, 1, 6)
    assert found["log_probs"].shape == (0, 1)


@pytest.mark.parametrize("token_id", [-1, 72])
def test_unknown_token_ids_are_refused(model, generator, token_id):
    token_ids = np.array([[1, token_id, 2]])
    for generate in (generator.generate_on_batch, model.generate):
        with refused("encoder_token_ids"):
            generate(token_ids)


@pytest.mark.skipif(on_jax, reason="JAX's loops keep every size.")
def test_early_exit_finds_the_same(model, generator):
    expected = Generator(model, early_exit=False).answer(QUESTIONS)
    found = generator.answer(QUESTIONS)
    assert [a.text for a in found] == [a.text for a in expected]


def test_refuses_answers_that_the_attention_has_no_room_for():
    model = make_model(attention="multi_linear", positions="sinusoidal")
    with refused("attention_options"):
        Generator(model, max_length=200)


@pytest.mark.parametrize("value", [0, 2.5, "8", True, math.nan])
def test_refuses_invalid_sizes(model, value):
    for field, ask in (
        ("batch_size", lambda: model.solve(["1"], batch_size=value)),
        ("max_length", lambda: Generator(model, max_length=value)),
    ):
        with refused(field):
            ask()
