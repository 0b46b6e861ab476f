"""An exported model in this process, intact or damaged."""

import random
import shutil

import pytest
import tensorflow as tf

from tpt_keras.answer import Answer
from tpt_keras.errors import UnreadableFileError
from tpt_keras.errors import UsageError
from tpt_keras.serving.exported_files import CHECKSUMS_ASSET
from tpt_keras.serving.exported_files import CONFIG_ASSET
from tpt_keras.serving.saved_model import SavedModel

QUESTIONS = ["What is the units digit of 23?", "1", "x" * 161, b"\xff", ""]
STATUSES = ["OK", "OK", "TOO_LONG", "INVALID_UTF8", "EMPTY"]
WEIGHTS = "variables/variables.data-00000-of-00001"


@pytest.fixture
def copy(version, tmp_path):
    """A copy of an exported model, to be damaged."""
    return shutil.copytree(version, tmp_path / "model" / "1")


def test_answers_are_the_models(version, untrained_model):
    model = SavedModel(version.parent)
    assert model.path == version
    assert model.config["max_question_length"] == 160
    answers = model.answer(QUESTIONS)
    expected = [*untrained_model.solve(QUESTIONS[:2]), "", "", ""]
    assert [answer.text for answer in answers] == expected
    assert [answer.status for answer in answers] == STATUSES
    assert all(answer.log_prob < 0 for answer in answers[:2])
    assert model.answer([]) == []
    with pytest.raises(TypeError):
        model.answer("1 + 1")


def save(path, function):
    """Saves a function of questions as another program might."""
    module = tf.Module()
    module.function = tf.function(
        function,
        input_signature=[tf.TensorSpec((None,), tf.string, "questions")],
    )
    tf.saved_model.save(module, str(path), module.function)


def echo(questions):
    size = tf.size(questions)
    return {
        "answers": questions,
        "log_probs": tf.fill([size], -0.5),
        "status": tf.fill([size], "OK"),
    }


def test_many_questions(tmp_path):
    save(tmp_path / "1", echo)
    questions = [str(number) for number in range(150)]
    answers = SavedModel(tmp_path).answer(questions)
    assert answers == [Answer(question, -0.5) for question in questions]


def test_any_damaged_or_missing_file_is_found(copy):
    """TensorFlow does not see it: it may end the process."""
    generator = random.Random(1)
    files = [
        path
        for path in copy.rglob("*")
        if path.is_file() and path.name != "SHA256SUMS"
    ]
    assert len(files) >= 5
    for path in files:
        content = path.read_bytes()
        place = generator.randrange(len(content))
        flipped = bytearray(content)
        flipped[place] ^= 1 << generator.randrange(8)
        for damaged in (content[:place], flipped, None):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            with pytest.raises(UsageError) as caught:
                SavedModel(copy)
            if damaged is not None:
                assert isinstance(caught.value, UnreadableFileError)
                assert caught.value.path == str(path)
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("saved_model.pb", b""),
        ("saved_model.pb", b"nothing"),
        ("saved_model.pb", 1000),
        (WEIGHTS, 1000),
        ("variables/variables.index", b"nothing"),
        ("variables/variables.index", None),
    ],
)
def test_damage_without_checksums_is_refused(copy, name, content):
    (copy / CHECKSUMS_ASSET).unlink()
    if isinstance(content, int):
        content = (copy / name).read_bytes()[:-content]
    (copy / name).unlink()
    if content is not None:
        (copy / name).write_bytes(content)
    with pytest.raises(UsageError) as caught:
        SavedModel(copy)
    assert caught.value.path == str(copy)


@pytest.mark.parametrize("content", [None, b"[" * 10**5, b"3"])
def test_the_configuration_is_optional(copy, content):
    (copy / CHECKSUMS_ASSET).unlink()
    (copy / CONFIG_ASSET).unlink()
    if content is not None:
        (copy / CONFIG_ASSET).write_bytes(content)
    assert SavedModel(copy).config == {}


@pytest.mark.parametrize(
    "change",
    [
        lambda outputs: {"answers": outputs["answers"]},
        lambda outputs: dict.fromkeys(outputs, outputs["log_probs"]),
        lambda outputs: {**outputs, "status": tf.fill([9], "OK")},
        lambda outputs: {name: v[:1] for name, v in outputs.items()},
    ],
)
def test_another_programs_model_is_refused(tmp_path, change):
    save(tmp_path / "1", lambda questions: change(echo(questions)))
    with pytest.raises(UsageError):
        SavedModel(tmp_path).answer(["1", "2"])


def test_a_model_without_signatures_is_refused(tmp_path):
    tf.saved_model.save(tf.Module(), str(tmp_path / "1"))
    with pytest.raises(UsageError):
        SavedModel(tmp_path)
