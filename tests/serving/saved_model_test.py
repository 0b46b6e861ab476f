"""An exported model in this process, whole or damaged."""

import random
import shutil

import pytest
import tensorflow as tf

from tests.serving import toy_model
from tpt_keras.errors import UsageError
from tpt_keras.serving.checksums import CHECKSUMS_ASSET
from tpt_keras.serving.saved_model import SavedModel
from tpt_keras.serving.versions import CONFIG_ASSET

QUESTIONS = ["What is the units digit of 23?", "1", "x" * 161, b"\xff", ""]
WEIGHTS = "variables/variables.data-00000-of-00001"


@pytest.fixture
def copy(version, tmp_path):
    """A copy of an exported model, to be damaged."""
    return shutil.copytree(version, tmp_path / "model" / "1")


def error_of(path, questions=QUESTIONS):
    """The one line that is said of a damaged model, or nothing."""
    try:
        SavedModel(path).answer(questions)
    except UsageError as error:
        message = str(error)
        assert "\n" not in message
        assert str(path) in message
        assert "tpt_keras export" in message
        return message
    return None


def test_answers_as_the_model_does(version, untrained_model):
    model = SavedModel(version.parent)
    assert model.path == version
    assert model.config["max_question_length"] == 160
    answers = model.answer(QUESTIONS)
    assert [a.text for a in answers] == [
        *untrained_model.solve(QUESTIONS[:2]),
        *[""] * 3,
    ]
    assert [a.status for a in answers] == [
        "OK",
        "OK",
        "TOO_LONG",
        "INVALID_UTF8",
        "EMPTY",
    ]
    assert all(a.log_prob < 0 for a in answers[:2])
    assert model.answer([]) == []
    with pytest.raises(TypeError, match="list"):
        model.answer("1 + 1")


def test_more_questions_than_a_batch(tmp_path):
    toy_model.save(tmp_path, 1)
    questions = [str(number) for number in range(150)]
    answers = SavedModel(tmp_path).answer(questions)
    assert [answer.text for answer in answers] == questions


@pytest.mark.parametrize("name", ["a[1]", "b*"])
def test_a_folder_whose_name_is_a_pattern(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    toy_model.save(folder, 1, "one ")
    [answer] = SavedModel(folder).answer(["x"])
    assert answer.text == "one x"


@pytest.mark.slow
def test_any_file_damaged_or_missing(copy):
    """Found before TensorFlow sees it, which may end the process."""
    generator = random.Random(1)
    files = [path for path in copy.rglob("*") if path.is_file()]
    assert len(files) >= 6
    for path in files:
        content = path.read_bytes()
        place = generator.randrange(len(content))
        bit = bytes([content[place] ^ 1 << generator.randrange(8)])
        for damaged in (
            content[:place],
            content[:place] + bit + content[place + 1 :],
            None,
        ):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            message = error_of(copy)
            if damaged is None and path.name == "saved_model.pb":
                assert "no SavedModel" in message
            elif path.name != "SHA256SUMS":
                assert path.name in message
            path.write_bytes(content)
    assert error_of(copy) is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("saved_model.pb", b""),
        ("saved_model.pb", b"nothing"),
        # Less, so that it is another graph, or none.
        ("saved_model.pb", 1000),
        (WEIGHTS, 1000),
        (WEIGHTS, b""),
        ("variables/variables.index", b"nothing"),
        ("variables/variables.index", None),
    ],
)
def test_damage_without_checksums(copy, name, content):
    """As in exports of old versions: TensorFlow finds what it can."""
    (copy / CHECKSUMS_ASSET).unlink()
    if isinstance(content, int):
        content = (copy / name).read_bytes()[:-content]
    (copy / name).unlink()
    if content is not None:
        (copy / name).write_bytes(content)
    assert error_of(copy)


@pytest.mark.parametrize("content", [None, b"[" * 10**5])
def test_answers_without_its_configuration(copy, content):
    (copy / CHECKSUMS_ASSET).unlink()
    (copy / CONFIG_ASSET).unlink()
    if content is not None:
        (copy / CONFIG_ASSET).write_bytes(content)
    assert SavedModel(copy).config == {}


@pytest.mark.parametrize("kind", ["no signature", "numbers", "rows", "names"])
def test_a_model_of_another_program(tmp_path, kind):
    def call(questions):
        size = tf.size(questions)
        return {
            "numbers": {
                name: tf.zeros([size])
                for name in ("answers", "log_probs", "status")
            },
            "rows": {
                "answers": questions,
                "log_probs": tf.zeros([size]),
                "status": tf.fill([size + 1], "OK"),
            },
        }.get(kind, {"answers": questions})

    module = tf.Module()
    module.call = tf.function(
        call, input_signature=[tf.TensorSpec((None,), tf.string, "questions")]
    )
    signatures = None if kind == "no signature" else module.call
    tf.saved_model.save(module, str(tmp_path / "1"), signatures)
    assert "another program's" in error_of(tmp_path / "1")


def test_another_programs_model_that_leaves_answers_out(tmp_path):
    @tf.function(input_signature=[toy_model.QUESTIONS])
    def answer(questions):
        first = questions[:1]
        return {"answers": first, "log_probs": tf.zeros(1), "status": first}

    tf.saved_model.save(tf.Module(), str(tmp_path / "1"), answer)
    assert "ValueError: 1 of 2 answers" in error_of(tmp_path / "1", ["1", "2"])
