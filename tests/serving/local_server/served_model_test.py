"""One version of a model, asked by many at once."""

import concurrent.futures
import shutil

import numpy as np
import pytest

from tests.serving import toy_model
from tests.serving.served import Served
from tpt_keras.errors import UsageError
from tpt_keras.serving.local_server.batching import Batching
from tpt_keras.serving.local_server.request_error import RequestError
from tpt_keras.serving.local_server.served_model import ServedModel


@pytest.fixture
def toys(tmp_path):
    """Two models that differ in nothing but what they say."""
    for name in "ab":
        toy_model.save(tmp_path / name, 1, f"{name} ")
    return [ServedModel(tmp_path / name / "1", Batching(16)) for name in "ab"]


def ask(model, questions, signature_name=""):
    return model.run(signature_name, {"questions": np.array(questions, object)})


def test_everyone_gets_their_own(toys):
    """Also of two models at once, whose batches must not be one."""

    def answer(number):
        questions = [str(number)] * (number % 3 + 1)
        answers = ask(toys[number % 2], questions)["answers"]
        prefix = "ab"[number % 2]
        return [a.decode() for a in answers] == [
            f"{prefix} {question}" for question in questions
        ]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(answer, range(1000)))


def test_a_request_is_as_large_as_a_batch_can_be(toys):
    assert len(ask(toys[0], ["1"] * 16)["answers"]) == 16
    with pytest.raises(RequestError, match="batch size 16"):
        ask(toys[0], ["1"] * 17)


def test_what_cannot_be_batched_is_not(toys):
    assert ask(toys[0], ["1"] * 17, "count")["count"] == 17
    ids = np.ones((17, 3), np.int32)
    inputs = {"encoder_token_ids": ids, "decoder_token_ids": ids}
    assert toys[0].run("token_ids", inputs)["logits"].shape == (17, 3)


@pytest.mark.slow
def test_an_exported_model(version):
    """With its warm-up requests, and every signature that it has."""
    model = ServedModel(version, Batching(64))
    assert model.version == 1
    questions = ["What is 1 + 1?", "x" * 161, "2"]
    outputs = ask(model, questions)
    expected = Served(version)("serving_default", questions=questions)
    assert set(outputs) == set(expected)
    assert outputs["answers"].tolist() == expected["answers"].tolist()
    assert outputs["status"].tolist() == [b"OK", b"TOO_LONG", b"OK"]
    assert ask(model, questions, "n_best")["status"].tolist() == [
        b"OK",
        b"TOO_LONG",
        b"OK",
    ]
    ids = np.array([[1, 15, 9, 2]], np.int32)
    inputs = {"encoder_token_ids": ids, "decoder_token_ids": ids}
    assert model.run("token_ids", inputs)["logits"].shape == (1, 4, 72)


@pytest.mark.slow
def test_warm_up_requests_larger_than_a_batch(version):
    """Nobody could make them here: they are left out."""
    model = ServedModel(version, Batching(32))
    assert ask(model, ["1"] * 32)["status"].tolist() == [b"OK"] * 32


def test_a_version_that_is_not_what_was_exported(version, tmp_path):
    path = tmp_path / "1"
    shutil.copytree(version, path)
    with (path / "saved_model.pb").open("r+b") as file:
        file.seek(1000)
        file.write(b"x")
    with pytest.raises(UsageError, match=r"'saved_model\.pb' is not what"):
        ServedModel(path, Batching(64))
