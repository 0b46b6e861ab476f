import contextlib
import json
import pathlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry
from tensorflow_serving.apis import prediction_log_pb2

from tests.models.transformer_test import VOCABULARY
from tests.refusals import refused
from tests.serving.c_api_test import save_graph
from tests.serving.c_api_test import slice_update
from tests.serving.conftest import SUMS
from tests.serving.served import Served
from tests.serving.served import signature_defs
from tpt_keras.errors import MissingDependencyError
from tpt_keras.errors import UsageError
from tpt_keras.errors import disk_fault
from tpt_keras.files import LOCK_FILE
from tpt_keras.files import folder_lock
from tpt_keras.models import Transformer
from tpt_keras.models.configs import from_stored
from tpt_keras.serving import export as export_module
from tpt_keras.serving.export import WARMUP_BATCH_SIZES
from tpt_keras.serving.export import export
from tpt_keras.serving.export_graph import check_graph
from tpt_keras.serving.saved_model import CONFIG_ASSET
from tpt_keras.serving.saved_model import SavedModel

QUESTIONS = [
    "What is the units digit of 23?",
    "What is the thousands digit of 8234?",
    "1",
    "Solve 2*x + 3 = 0 for x.",
    "x" * 160,
    # The characters, not the symbols.
    "1<end>2",
]


@pytest.mark.parametrize("batch_size", [0, 1, 2, 6])
def test_answers_are_the_models(served, model, batch_size):
    questions = QUESTIONS[:batch_size]
    expected = model.solve(questions)
    assert len(set(expected)) >= batch_size // 2
    assert served.ask(questions) == (expected, ["OK"] * batch_size)


BAD_QUESTIONS = {
    "": "EMPTY",
    " \n": "EMPTY",
    "x" * 161: "TOO_LONG",
    "x" * 5000: "TOO_LONG",
    "What is 5 % 3?": "UNKNOWN_CHARACTER",
    "\N{REPLACEMENT CHARACTER}": "UNKNOWN_CHARACTER",
    "two\nlines": "UNKNOWN_CHARACTER",
    "nothing\0": "UNKNOWN_CHARACTER",
    "<pad>_": "UNKNOWN_CHARACTER",
    # Two bytes for each character: the limit is of characters.
    "é" * 100: "UNKNOWN_CHARACTER",
    "é" * 161: "TOO_LONG",
    b"What is \xff?": "INVALID_UTF8",
    b"\xff" * 200: "INVALID_UTF8",
}


def test_bad_questions_do_not_affect_others(served, model):
    good = QUESTIONS[:4]
    expected = model.solve(good)
    for bad, status in BAD_QUESTIONS.items():
        assert served.ask([good[0], bad, *good[1:]]) == (
            [expected[0], "", *expected[1:]],
            ["OK", status, "OK", "OK", "OK"],
        )
    assert served.ask(list(BAD_QUESTIONS)) == (
        [""] * len(BAD_QUESTIONS),
        list(BAD_QUESTIONS.values()),
    )


def test_an_answer_that_cannot_be_scored_does_not_affect_others(served, model):
    pairs = {
        ("1+2", "3"): b"OK",
        ("1+2", "%"): b"UNKNOWN_CHARACTER",
        ("1+2", ""): b"OK",
        ("1+2", "1" * 7): b"TOO_LONG",
        ("", "3"): b"EMPTY",
        ("1+2", b"\xff"): b"INVALID_UTF8",
        ("2*23", "-12.34"): b"OK",
    }
    questions, answers = zip(*pairs)
    together = served("score", questions=questions, answers=answers)
    assert together["status"].tolist() == list(pairs.values())
    alone = [
        served("score", questions=[q], answers=[a])["log_probs"][0]
        for q, a in pairs
    ]
    np.testing.assert_allclose(together["log_probs"], alone, atol=1e-5)
    is_scored = together["status"] == b"OK"
    assert np.all(together["log_probs"][is_scored] < 0.0)
    assert not np.any(together["log_probs"][~is_scored])


@pytest.mark.slow
def test_n_best_of_bad_questions_is_empty(beam_served):
    outputs = beam_served("n_best", questions=["%", "1+2"])
    assert outputs["status"].tolist() == [b"UNKNOWN_CHARACTER", b"OK"]
    assert outputs["answers"][0].tolist() == [b""] * 3
    assert outputs["log_probs"][0].tolist() == [0.0] * 3


@pytest.mark.slow
def test_bfloat16_rarely_changes_answers(bfloat16_version, model):
    answers, status = Served(bfloat16_version).ask(SUMS)
    assert set(status) == {"OK"}
    assert np.mean(np.equal(answers, model.solve(SUMS))) >= 0.8


@pytest.mark.parametrize(
    ("value", "precision"),
    [
        (np.nan, "float32"),
        # Rounded to bfloat16, it is infinite.
        (np.finfo("float32").max, "bfloat16"),
    ],
)
def test_weights_that_are_not_finite_are_refused(
    tmp_path, model, value, precision
):
    model = Transformer(model.config)
    model.embedding.role_dense.kernel.assign(np.full((16, 16), value))
    with refused(part="embedding/role/kernel"):
        export(model, tmp_path / "model", precision=precision)
    assert not (tmp_path / "model").exists()


def warm_up_requests(version):
    """Yields the name of a signature and its inputs."""
    # TF Serving looks for this name.
    path = version / "assets.extra" / "tf_serving_warmup_requests"
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        request = prediction_log_pb2.PredictionLog.FromString(
            record
        ).predict_log.request
        inputs = {k: tf.make_ndarray(v) for k, v in request.inputs.items()}
        yield request.model_spec.signature_name, inputs


def test_warm_up_requests_are_answered(version, served):
    sizes = {}
    for signature, inputs in warm_up_requests(version):
        sizes.setdefault(signature, []).append(len(inputs["questions"]))
        if len(inputs["questions"]) <= 8:
            status = served(signature, **inputs)["status"]
            assert set(status.tolist()) == {b"OK"}
    assert sizes == {
        "serving_default": list(WARMUP_BATCH_SIZES),
        "n_best": [1],
        "score": [1],
    }


def test_signatures_have_the_documented_shapes(version):
    strings = (tf.string, [-1])
    best = [-1, 1]
    outputs = {
        "serving_default": {
            "answers": strings,
            "log_probs": (tf.float32, [-1]),
            "status": strings,
        },
        "n_best": {
            "answers": (tf.string, best),
            "log_probs": (tf.float32, best),
            "status": strings,
        },
        "score": {"log_probs": (tf.float32, [-1]), "status": strings},
    }

    def shapes(tensors):
        return {
            key: (
                tf.dtypes.as_dtype(tensor.dtype),
                [dim.size for dim in tensor.tensor_shape.dim],
            )
            for key, tensor in tensors.items()
        }

    signatures = signature_defs(version)
    assert set(signatures) == set(outputs)
    for name, signature in signatures.items():
        assert signature.method_name == "tensorflow/serving/predict"
        inputs = {"questions": strings}
        if name == "score":
            inputs["answers"] = strings
        assert shapes(signature.inputs) == inputs
        assert shapes(signature.outputs) == outputs[name]


def in_a_branch(x):
    return tf.cond(
        tf.shape(x)[0] > 2, lambda: slice_update(x), lambda: {"y": x}
    )


def numpy_function(x):
    return {"y": tf.numpy_function(lambda y: y, [x], tf.float32)}


@pytest.mark.parametrize(
    ("function", "op"),
    [(in_a_branch, "XlaDynamicUpdateSlice"), (numpy_function, "PyFunc")],
)
def test_ops_that_a_stock_server_lacks_are_refused(tmp_path, function, op):
    save_graph(tmp_path, function)
    with pytest.raises(ValueError, match=op):
        check_graph(tmp_path)


@pytest.mark.parametrize("op", ["Text>Tokenize", "SentencepieceOp"])
def test_custom_ops_are_refused(tmp_path, monkeypatch, op):
    saved_model = saved_model_pb2.SavedModel()
    graph = saved_model.meta_graphs.add().graph_def
    function = graph.library.function.add()
    function.signature.name = "a_function"
    graph.node.add(name="known", op="AddV2")
    graph.node.add(name="call", op="a_function")
    path = tmp_path / "saved_model.pb"
    path.write_bytes(saved_model.SerializeToString())
    check_graph(tmp_path)
    function.node_def.add(name="custom", op=op)
    path.write_bytes(saved_model.SerializeToString())
    if ">" in op:
        # Even if the package that registers it was imported.
        monkeypatch.setattr(op_def_registry, "get", lambda op: op)
    with pytest.raises(ValueError, match=op):
        check_graph(tmp_path)


@pytest.fixture
def quick(monkeypatch):
    """Exports a small graph, which is quicker to trace."""

    def write(graph, path):
        save_graph(path, lambda x: {"y": x + 1.0})

    monkeypatch.setattr(export_module, "_write_graph", write)


def test_the_card_is_beside_the_graph(version, model, tmp_path, quick):
    config = json.loads((version / CONFIG_ASSET).read_text())
    assert from_stored(config) == model.config
    assert not (version / "assets.extra/README.md").exists()
    card = tmp_path / "card.md"
    card.write_text("# A solver\n")
    version = export(model, tmp_path / "model", card=card)
    copy = version / "assets.extra/README.md"
    assert copy.read_text() == card.read_text()


@pytest.mark.parametrize("length", [1, 7])
def test_warm_up_requests_fit_the_model(model, tmp_path, quick, length):
    limits = {"max_question_length": length, "max_answer_length": length}
    model = Transformer(model.config.replace(vocabulary=VOCABULARY, **limits))
    for _, inputs in warm_up_requests(export(model, tmp_path)):
        for texts in inputs.values():
            status = model.tokenizer.question_status(texts[0].decode(), length)
            assert status == "OK"


def names(folder):
    return sorted(
        path.name
        for path in pathlib.Path(folder).iterdir()
        if path.name != LOCK_FILE
    )


def test_versions_count_up(tmp_path, model, quick):
    for number in ("1", "2"):
        assert export(model, tmp_path) == tmp_path / number
    (tmp_path / "1").rename(tmp_path / "10")
    assert export(model, tmp_path).name == "11"
    # A file and a name are no versions.
    (tmp_path / "20").touch()
    (tmp_path / "30-old").mkdir()
    assert export(model, str(tmp_path)).name == "12"
    (tmp_path / "13").symlink_to("nowhere")
    with refused(path=tmp_path / "13"):
        export(model, tmp_path)


def test_a_crash_leaves_no_version(tmp_path, model, quick, monkeypatch):
    def die(*args):
        raise ValueError("crash")

    with monkeypatch.context() as patch:
        patch.setattr(export_module, "check_graph", die)
        with pytest.raises(ValueError, match="crash"):
            export(model, tmp_path)
    assert names(tmp_path) == []
    # The next export removes what a killed one left.
    (tmp_path / "partial").mkdir()
    (tmp_path / "partial" / "half").touch()
    assert export(model, tmp_path) == tmp_path / "1"
    assert names(tmp_path) == ["1"]
    assert "half" not in names(tmp_path / "1")


def test_only_one_process_exports_to_a_folder(tmp_path, model, quick):
    with folder_lock(tmp_path, "exports"):
        (tmp_path / "partial").mkdir()
        with pytest.raises(UsageError):
            export(model, tmp_path)
        assert names(tmp_path) == ["partial"]


@contextlib.contextmanager
def full_disk(num_bytes):
    """A limit on the size of files, which has the effect of a full disk."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("num_bytes", [1, 2000])
def test_a_full_disk_leaves_no_version(tmp_path, model, quick, num_bytes):
    """TensorFlow's writing fails, or this project's."""
    with full_disk(num_bytes), pytest.raises(Exception) as caught:  # noqa: PT011
        export(model, tmp_path)
    assert "File too large" in disk_fault(caught.value)
    assert names(tmp_path) == []


def test_the_longest_answer_is_stored_and_checked(tmp_path, model, quick):
    version = export(model, tmp_path / "short", max_answer_length=2)
    assert SavedModel(version).config["max_answer_length"] == 2
    limited = Transformer.from_preset(
        "tp_transformer_multi_linear",
        **{"hidden_dim": 16, "num_heads": 2, "num_layers": 1},
        max_question_length=5,
        max_answer_length=6,
        attention_options={"max_length": 7},
    )
    with refused("attention_options"):
        export(limited, tmp_path / "long", max_answer_length=30)
    assert not (tmp_path / "long").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"max_answer_length": 0},
        {"max_answer_length": 2.5},
        {"precision": "float16"},
        {"precision": "int8"},  # of ONNX graphs
        {"precision": "mixed_bfloat16"},
    ],
)
def test_invalid_options_are_refused(tmp_path, model, options):
    with refused(*options):
        export(model, tmp_path / "model", **options)
    assert not (tmp_path / "model").exists()


def test_another_backend_is_refused(tmp_path, model, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(UsageError):
        export(model, tmp_path / "model")


def test_the_serving_extra_is_asked_for(tmp_path, model, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_serving", None)
    with refused(part="tpt_keras[serving]", error=MissingDependencyError):
        export(model, tmp_path / "model")
