"""ONNX exports: their answers, their folders, and what they import."""

import shutil
import sys

import keras
import numpy as np
import pytest

from tests.experiments.command import run_alone
from tests.experiments.command import run_python
from tests.experiments.command import without
from tests.models.transformer_test import VOCABULARY
from tests.refusals import refused
from tests.serving.export_test import BAD_QUESTIONS
from tpt_keras.answer import Answer
from tpt_keras.decoding import Generator
from tpt_keras.errors import MissingDependencyError
from tpt_keras.errors import UsageError
from tpt_keras.models import PRESETS
from tpt_keras.models import build_model
from tpt_keras.models.configs import from_stored
from tpt_keras.serving import OnnxModel
from tpt_keras.serving.onnx_model import CONFIG_FILE
from tpt_keras.serving.onnx_model import DECODE_FILE
from tpt_keras.serving.onnx_model import ENCODE_FILE

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.torch,
    pytest.mark.skipif(
        keras.backend.backend() != "torch", reason="PyTorch exports graphs."
    ),
]

SIZES = {
    "transformer": {"intermediate_dim": 32, "num_heads": 2, "num_layers": 2},
    "lstm": {"encoder_dim": 8, "attention_dim": 8, "thinking_steps": 1},
}
# Each exports other ops; the rest is exported exhaustively.
DIFFERENT = (
    "dual_attention",
    "lstm_attention",
    "tp_transformer_multi_linear",
    "tp_transformer_numbers",
    "tp_transformer_xl",
)
NOT_NEEDED = "filelock", "keras", "onnx", "tensorflow", "torch", "tqdm"
QUESTIONS = [
    f"{a}+{b}{c}" for a in range(4) for b in range(4) for c in range(4)
]
QUESTIONS.append("1")


def small_model(preset, **overrides):
    """A model with random weights."""
    sizes = {
        "hidden_dim": 16,
        "max_answer_length": 6,
        "max_question_length": 16,
        # A word, and an id without a symbol, are in no answer.
        "vocabulary": (*VOCABULARY, "a", "aa"),
        "vocabulary_size": 11,
        **SIZES[PRESETS[preset].KIND],
    }
    model = build_model(PRESETS[preset].replace(**{**sizes, **overrides}))
    rng = np.random.default_rng(5)
    for weight in model.weights:
        if len(weight.shape) > 1:
            weight.assign(rng.normal(size=weight.shape))
    return model


def export(*args, **kwargs):
    from tpt_keras.serving.onnx_export import export_onnx

    return export_onnx(*args, **kwargs)


@pytest.fixture(scope="module")
def model():
    return small_model("tp_transformer", num_layers=1, max_question_length=160)


@pytest.fixture(scope="module")
def version(model, tmp_path_factory):
    return export(model, tmp_path_factory.mktemp("onnx"))


@pytest.fixture(scope="module")
def onnx_model(version):
    return OnnxModel(version.parent)


@pytest.mark.parametrize(
    "preset",
    [
        preset
        if preset in DIFFERENT
        else pytest.param(preset, marks=pytest.mark.exhaustive)
        for preset in PRESETS
    ],
)
def test_answers_are_the_models(preset, tmp_path):
    model = small_model(preset)
    onnx_model = OnnxModel(export(model, tmp_path))
    # Batches of 64, which shrinks, and of one.
    for questions in (QUESTIONS, QUESTIONS[-1:]):
        answers = onnx_model.answer(questions)
        expected = Generator(model).answer(questions)
        assert [answer.text for answer in answers] == [
            answer.text for answer in expected
        ]
        np.testing.assert_allclose(
            [answer.log_prob for answer in answers],
            [answer.log_prob for answer in expected],
            rtol=1e-3,
            atol=1e-3,
        )
    given = ["", "3", "123+21", "%", "1" * 7]
    scored = onnx_model.score(QUESTIONS[:5], given)
    expected = Generator(model).score(QUESTIONS[:5], given)
    for x, y in zip(scored, expected):
        assert (x.text, x.status) == (y.text, y.status)
        # Random weights make some roundings large: up to 2e-4.
        assert (x.log_prob or 0) == pytest.approx(y.log_prob or 0, 1e-3, 1e-3)
    answers = onnx_model.answer(QUESTIONS)
    # The model tells most of the questions apart.
    log_probs = {round(answer.log_prob, 2) for answer in answers}
    assert len(log_probs) > len(QUESTIONS) / 2


def test_int8_weights_rarely_change_answers(tmp_path):
    sizes = {"hidden_dim": 128, "intermediate_dim": 512, "num_heads": 2}
    keras.utils.set_random_seed(2)
    model = build_model(
        PRESETS["tp_transformer_numbers"].replace(**sizes, num_layers=2)
    )
    version = export(model, tmp_path, 5, "int8")
    assert {path.name for path in version.iterdir()} == {
        *(CONFIG_FILE, DECODE_FILE, ENCODE_FILE)
    }
    content = sum(path.stat().st_size for path in version.glob("*.onnx"))
    assert content < 2.5 * model.count_params()
    onnx_model = OnnxModel(version)
    config = model.config.replace(max_answer_length=5)
    assert from_stored(onnx_model.config) == config
    answers = onnx_model.answer(QUESTIONS)
    expected = Generator(model, max_length=5).answer(QUESTIONS)
    differences = [
        abs(answer.log_prob / other.log_prob - 1.0)
        for answer, other in zip(answers, expected)
        if answer.text == other.text
    ]
    assert len(differences) > 0.8 * len(QUESTIONS)
    # Of four seeds: 0.003 to 0.012.
    assert 0.0 < np.median(differences) < 0.03


def test_bad_questions_do_not_affect_others(onnx_model, model):
    questions = ["1", *BAD_QUESTIONS, "1+1"]
    answers = onnx_model.answer(questions)
    good = [answers.pop(0), answers.pop()]
    assert [answer.text for answer in good] == model.solve(["1", "1+1"])
    assert answers == [
        Answer("", None, status) for status in BAD_QUESTIONS.values()
    ]
    assert onnx_model.answer([]) == []


def test_a_loaded_model_outlives_its_version(version, model, tmp_path):
    copy = shutil.copytree(version, tmp_path / "1")
    onnx_model = OnnxModel(copy)
    shutil.rmtree(copy)
    for questions in (["1"], QUESTIONS[:9]):
        assert onnx_model.solve(questions) == model.solve(questions)


def test_a_command_answers_without_keras(version, model, tmp_path):
    result = run_python(
        *("-m", "experiments", "solve", "--question=10+3"),
        f"--onnx_model={version}",
        env=without(tmp_path, *NOT_NEEDED),
    )
    assert result.stdout == f"{model.solve(['10+3'])[0]}\n"


def test_a_command_exports(model, tmp_path):
    model.save(tmp_path / "model.keras")
    arguments = ("--format=onnx", f"--model={tmp_path}")
    folder = f"--export_dir={tmp_path / 'onnx'}"
    result = run_alone("export", *arguments, folder).quiet()
    assert result.stdout.splitlines()[1:] == [str(tmp_path / "onnx" / "1")]
    assert OnnxModel(tmp_path / "onnx").solve(["1"]) == model.solve(["1"])
    result = run_alone("export", *arguments, folder, "--beam_width=2")
    assert (result.status, "--beam_width" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (ENCODE_FILE, b"nothing"),
        (DECODE_FILE, b""),
        (DECODE_FILE, None),
        (f"{DECODE_FILE}.data", None),
        (CONFIG_FILE, b"[" * 10**5),
        (CONFIG_FILE, b"{}"),
        (CONFIG_FILE, None),
    ],
)
def test_a_damaged_export_is_refused(version, tmp_path, name, content):
    copy = shutil.copytree(version, tmp_path / "1")
    (copy / name).unlink()
    if content is not None:
        (copy / name).write_bytes(content)
    with refused(path=copy):
        OnnxModel(copy)


def test_another_programs_graph_is_refused(version, tmp_path):
    copy = shutil.copytree(version, tmp_path / "1")
    shutil.copy(copy / ENCODE_FILE, copy / DECODE_FILE)
    with pytest.raises(UsageError):
        OnnxModel(tmp_path).answer(["1"])


def test_refused_exports_write_nothing(model, tmp_path, monkeypatch):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").touch()
    broken = build_model(model.config)
    broken.embedding.role_dense.kernel.assign(np.full((16, 16), np.nan))
    for exported, folder, length, part in (
        (model, tmp_path, None, "export_dir"),
        (model, tmp_path / "model", 2.5, "max_answer_length"),
        (broken, tmp_path / "model", None, "embedding/role/kernel"),
    ):
        with pytest.raises(UsageError, match=part):
            export(exported, folder, max_answer_length=length)
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(UsageError):
        export(model, tmp_path / "model")
    assert {path.name for path in tmp_path.iterdir()} == {"1", ".lock"}


def test_the_extra_is_asked_for(tmp_path, model, version, monkeypatch):
    for module, function in (
        ("onnxscript", lambda: export(model, tmp_path / "model")),
        ("onnxruntime", lambda: OnnxModel(version)),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        with refused(part="tpt_keras[onnx]", error=MissingDependencyError):
            function()
