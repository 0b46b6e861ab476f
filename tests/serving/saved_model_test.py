"""An exported model in this process, intact or damaged."""

import gc
import json
import shutil
import weakref

import pytest
import tensorflow as tf

from tests.experiments.command import run_python
from tests.refusals import refused
from tests.serving.conftest import MAX_ANSWER_LENGTH
from tests.serving.conftest import SAMPLER
from tpt_keras.decoding import Generator
from tpt_keras.errors import UsageError
from tpt_keras.serving.saved_model import CONFIG_ASSET
from tpt_keras.serving.saved_model import GRAPH_FILE
from tpt_keras.serving.saved_model import SavedModel
from tpt_keras.serving.versions import newest_version

QUESTIONS = ["What is the units digit of 23?", "1", "x" * 161, b"\xff", ""]
STATUSES = ["OK", "OK", "TOO_LONG", "INVALID_UTF8", "EMPTY"]
WEIGHTS = "variables/variables.data-00000-of-00001"


def make_version(folder):
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").touch()
    return folder


def test_the_newest_version_is_found(tmp_path):
    names = ("1", "9", "00000010", "partial", "11-old", "-12", "1.5", "\u0663")
    for name in names:
        make_version(tmp_path / name)
    (tmp_path / "20").touch()
    assert (
        newest_version(str(tmp_path), GRAPH_FILE, "SavedModel")
        == tmp_path / "00000010"
    )
    assert (
        newest_version(tmp_path / "9", GRAPH_FILE, "SavedModel")
        == tmp_path / "9"
    )


@pytest.mark.parametrize("made", [[], ["folder"], ["folder/1"], ["folder/x"]])
def test_a_missing_saved_model_is_refused(tmp_path, made):
    for name in made:
        (tmp_path / name).mkdir(parents=True)
    with refused(path=tmp_path / "folder"):
        newest_version(tmp_path / "folder", GRAPH_FILE, "SavedModel")


def test_answers_are_the_models(version, model, caplog):
    saved_model = SavedModel(version.parent)
    # TensorFlow would warn that gradients are not saved.
    assert not caplog.messages
    assert saved_model.path == version
    assert saved_model.config["max_question_length"] == 160
    answers = saved_model.answer(QUESTIONS)
    expected = [*model.solve(QUESTIONS[:2]), "", "", ""]
    assert [answer.text for answer in answers] == expected
    assert [answer.status for answer in answers] == STATUSES
    assert all(answer.log_prob < 0 for answer in answers[:2])
    assert [answer.log_prob for answer in answers[2:]] == [None] * 3
    assert saved_model.answer([]) == []


@pytest.mark.slow
def test_alternatives_are_the_generators(beam_version, model):
    generator = Generator(model, SAMPLER, MAX_ANSWER_LENGTH)
    answers = SavedModel(beam_version).answer(QUESTIONS)
    for answer, other in zip(answers, generator.answer(QUESTIONS)):
        assert (answer.text, answer.status) == (other.text, other.status)
        assert [x.text for x in answer.alternatives] == [
            x.text for x in other.alternatives
        ]


def test_scores_are_the_models(version, model):
    questions = ["1+2", "2*23", "7", "", "2*23"]
    answers = ["", "-12.34", "123456", "1", "x" * 7]
    scored = SavedModel(version).score(questions, answers)
    expected = Generator(model).score(questions, answers)
    assert [answer.text for answer in scored] == answers
    statuses = ["OK", "OK", "OK", "EMPTY", "TOO_LONG"]
    for answer, other, status in zip(scored, expected, statuses):
        assert answer.status == other.status == status
        assert answer.log_prob == pytest.approx(other.log_prob, abs=1e-5)


@pytest.mark.slow
def test_a_model_that_is_gone_leaves_nothing(version):
    saved_model = SavedModel(version)
    graphs = [
        weakref.ref(saved_model._loaded.signatures[name].graph)
        for name in ("serving_default", "n_best", "score")
    ]
    expected = saved_model.solve(["1"])
    del saved_model
    gc.collect()
    assert [graph() for graph in graphs] == [None] * 3
    assert SavedModel(version).solve(["1"]) == expected


def save(path, function):
    """Saves a function of questions as another program might."""
    module = tf.Module()
    module.function = tf.function(
        function,
        input_signature=[tf.TensorSpec((None,), tf.string, "questions")],
    )
    tf.saved_model.save(module, str(path), {"n_best": module.function})
    (path / CONFIG_ASSET).parent.mkdir()
    (path / CONFIG_ASSET).write_text("{}")


def echo(questions):
    size = tf.size(questions)
    return {
        "answers": questions,
        "log_probs": tf.fill([size], -0.5),
        "status": tf.fill([size], "OK"),
    }


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("saved_model.pb", b""),
        ("saved_model.pb", 1000),
        (WEIGHTS, 1000),
        ("variables/variables.index", b"nothing"),
        ("variables/variables.index", None),
        (CONFIG_ASSET, b"[" * 10**5),
        (CONFIG_ASSET, None),
    ],
)
def test_a_damaged_export_is_refused(version, tmp_path, name, content):
    copy = shutil.copytree(version, tmp_path / "model" / "1")
    if isinstance(content, int):
        content = (copy / name).read_bytes()[:-content]
    (copy / name).unlink()
    if content is not None:
        (copy / name).write_bytes(content)
    with refused(path=copy):
        SavedModel(copy)


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


# One process, because importing TensorFlow takes longest.
SCRIPT = """
import json, sys
from absl import flags
from tensorflow.python.tools import saved_model_cli

for arguments in json.loads(sys.argv[1]):
    for name in flags.FLAGS:
        flags.FLAGS[name].unparse()
    sys.argv = ["saved_model_cli", *arguments]
    try:
        saved_model_cli.main()
    except SystemExit as exit:
        assert not exit.code, (arguments, exit.code)
assert "tpt_keras" not in sys.modules
"""


@pytest.mark.slow
def test_tensorflows_own_tool_reads_and_runs_an_export(version, model):
    served = [f"--dir={version}", "--tag_set=serve"]
    asked = "--input_exprs=questions=['1', '', '%']"
    commands = [
        ["scan", *served],
        ["run", *served, "--signature_def=serving_default", asked],
    ]
    result = run_python("-I", "-c", SCRIPT, json.dumps(commands)).succeeded()
    # No op reads or writes files, or prints.
    assert "does not contain the default denylisted ops" in result.stdout
    [answer] = model.solve(["1"])
    assert f"[{answer.encode()!r} b'' b'']" in result.stdout
    assert "[b'OK' b'EMPTY' b'UNKNOWN_CHARACTER']" in result.stdout
