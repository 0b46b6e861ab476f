import contextlib
import hashlib
import json
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry

from tests.serving.conftest import OPTIONS
from tests.serving.conftest import SUMS
from tests.serving.export.c_api_test import run as run_without_python
from tests.serving.served import signature_defs
from tpt_keras.decoding import BeamSampler
from tpt_keras.decoding import Generator
from tpt_keras.errors import UsageError
from tpt_keras.files import LOCK_FILE
from tpt_keras.files import folder_lock
from tpt_keras.models.stored_config import from_stored
from tpt_keras.serving.checksums import CHECKSUMS_ASSET
from tpt_keras.serving.export import check_graph
from tpt_keras.serving.export import export
from tpt_keras.serving.export import export_model
from tpt_keras.serving.versions import CONFIG_ASSET
from tpt_keras.serving.versions import WARMUP_ASSET

QUESTIONS = [
    "What is the units digit of 23?",
    "What is the thousands digit of 8234?",
    "1",
    "What is the hundreds digit of 123456?",
    "Solve 2*x + 3 = 0 for x.",
    "x" * 160,
    "What is the tens digit of 31859?",
]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7])
def test_answers_as_the_model_does(served, untrained_model, batch_size):
    questions = QUESTIONS[:batch_size]
    expected = untrained_model.solve(questions)
    # The model has something to say, and not always the same.
    assert len(set(expected)) >= min(batch_size, 3)
    assert all(expected)
    assert served.ask(questions) == (expected, ["OK"] * batch_size)


@pytest.mark.slow
def test_a_trained_model_answers_as_it_does(summing_served, summing_model):
    expected = summing_model.solve(list(SUMS))
    right = [answer == sum_ for answer, sum_ in zip(expected, SUMS.values())]
    assert np.mean(right) > 0.9
    assert summing_served.ask(list(SUMS))[0] == expected


@pytest.mark.slow
def test_no_questions(served, options_served):
    assert served.ask([]) == ([], [])
    n_best = options_served("n_best", questions=tf.constant([], tf.string))
    assert {name: value.shape for name, value in n_best.items()} == {
        "answers": (0, 3),
        "log_probs": (0, 3),
        "scores": (0, 3),
        "status": (0,),
    }


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        ("", "EMPTY"),
        ("x" * 161, "TOO_LONG"),
        ("x" * 5000, "TOO_LONG"),
        ("What is 5 % 3?", "UNKNOWN_CHARACTER"),
        ("What is one half: ½?", "UNKNOWN_CHARACTER"),
        ("\N{REPLACEMENT CHARACTER}", "UNKNOWN_CHARACTER"),
        ("two\nlines", "UNKNOWN_CHARACTER"),
        ("nothing\0", "UNKNOWN_CHARACTER"),
        # The special symbols' names are no symbols.
        ("<pad>_", "UNKNOWN_CHARACTER"),
        # Two bytes a character: the limit is one of characters.
        ("é" * 100, "UNKNOWN_CHARACTER"),
        (b"What is \xff?", "INVALID_UTF8"),
        (b"\xc3", "INVALID_UTF8"),
        # The first fault that makes the rest unreadable is the one named.
        ("é" * 161, "TOO_LONG"),
        (b"\xff" * 200, "INVALID_UTF8"),
    ],
)
def test_a_bad_question_alone_and_among_good_ones(
    served, untrained_model, bad, status
):
    assert served.ask([bad]) == ([""], [status])
    # Without the longest, so that a bad one could set the batch's length.
    good = [QUESTIONS[0], QUESTIONS[2], QUESTIONS[4]]
    expected = untrained_model.solve(good)
    assert served.ask([good[0], bad, *good[1:], bad]) == (
        [expected[0], "", *expected[1:], ""],
        ["OK", status, "OK", "OK", status],
    )


def test_nothing_but_bad_questions(served):
    assert served.ask([b"\xff", "", "%", "x" * 161]) == (
        [""] * 4,
        ["INVALID_UTF8", "EMPTY", "UNKNOWN_CHARACTER", "TOO_LONG"],
    )


def test_the_names_of_special_symbols_are_just_characters(
    served, untrained_model
):
    """They must not become the symbols, which would end a question."""
    questions = ["<pad>", "1<end>2", "<start>"]
    assert served.ask(questions)[0] == untrained_model.solve(questions)


# What it says of an answer


def tokens_of(row, end_id):
    """Token ids of an answer up to its end, the end included."""
    row = list(row)
    return row[: row.index(end_id) + 1] if end_id in row else row


@pytest.mark.parametrize(
    ("model_fixture", "served_fixture", "options"),
    [
        ("untrained_model", "served", {}),
        pytest.param(
            *("summing_model", "summing_served", {}), marks=pytest.mark.slow
        ),
        ("untrained_model", "options_served", OPTIONS),
    ],
)
def test_log_probs_are_those_of_the_logits(
    request, model_fixture, served_fixture, options
):
    """Added up here, step for step, from another signature's logits."""
    model = request.getfixturevalue(model_fixture)
    served = request.getfixturevalue(served_fixture)
    sampler = options.get("sampler", BeamSampler(1))
    # Also answers that end before others do: 3 and 18.
    questions = (
        ["1+2", "9+9"]
        if model_fixture == "summing_model"
        else [QUESTIONS[0], QUESTIONS[2], QUESTIONS[4]]
    )
    generator = Generator(model, sampler, options.get("max_answer_length"))
    tokenizer = model.tokenizer
    token_ids = generator.generate_on_batch(
        tokenizer.encode_questions(questions)
    )["token_ids"]
    n_best = served("n_best", questions=questions)
    for row, question in enumerate(questions):
        for rank in range(sampler.num_sequences):
            answer = tokens_of(token_ids[row, rank], tokenizer.end_id)
            assert n_best["answers"][row, rank].decode() == (
                tokenizer.decode(answer)
            )
            logits = served(
                "token_ids",
                encoder_token_ids=[tokenizer.encode(question)],
                decoder_token_ids=[[tokenizer.start_id, *answer[:-1]]],
            )["logits"][0].astype("float64")
            log_probs = logits - np.log(
                np.sum(np.exp(logits), axis=-1, keepdims=True)
            )
            log_prob = log_probs[range(len(answer)), answer].sum()
            np.testing.assert_allclose(
                n_best["log_probs"][row, rank], log_prob, rtol=1e-4, atol=1e-4
            )
            divisor = ((5 + len(answer)) / 6) ** sampler.length_penalty
            np.testing.assert_allclose(
                n_best["scores"][row, rank],
                log_prob / divisor,
                rtol=1e-4,
                atol=1e-4,
            )


def test_n_best(options_served, untrained_model):
    n_best = options_served("n_best", questions=QUESTIONS)
    assert n_best["status"].tolist() == [b"OK"] * len(QUESTIONS)
    for name in ("answers", "log_probs", "scores"):
        assert n_best[name].shape == (len(QUESTIONS), 3)
    assert np.all(np.diff(n_best["scores"], axis=1) <= 0.0)
    # A length penalty makes scores another thing than log-probabilities.
    assert np.all(n_best["scores"] > n_best["log_probs"])
    found = Generator(
        untrained_model, OPTIONS["sampler"], OPTIONS["max_answer_length"]
    ).generate_on_batch(untrained_model.tokenizer.encode_questions(QUESTIONS))
    assert n_best["answers"].tolist() == [
        [untrained_model.tokenizer.decode(ids).encode() for ids in row]
        for row in found["token_ids"]
    ]
    for name in ("log_probs", "scores"):
        np.testing.assert_allclose(
            n_best[name], found[name], rtol=1e-4, atol=1e-4
        )


def test_the_first_of_the_n_best_is_the_answer(options_served):
    n_best = options_served("n_best", questions=QUESTIONS)
    best = options_served("serving_default", questions=QUESTIONS)
    for name in ("answers", "log_probs"):
        assert n_best[name][:, 0].tolist() == best[name].tolist()


def test_n_best_of_greedy_search(served):
    n_best = served("n_best", questions=QUESTIONS)
    best = served("serving_default", questions=QUESTIONS)
    for name in ("answers", "log_probs", "scores"):
        assert n_best[name].shape == (len(QUESTIONS), 1)
    for name in ("answers", "log_probs"):
        assert n_best[name][:, 0].tolist() == best[name].tolist()
    # There is no length penalty.
    assert n_best["scores"].tolist() == n_best["log_probs"].tolist()


def test_n_best_of_bad_questions(options_served):
    outputs = options_served("n_best", questions=["%", QUESTIONS[0], b"\xff"])
    assert outputs["status"].tolist() == [
        b"UNKNOWN_CHARACTER",
        b"OK",
        b"INVALID_UTF8",
    ]
    for row in (0, 2):
        assert outputs["answers"][row].tolist() == [b""] * 3
        assert outputs["log_probs"][row].tolist() == [0.0] * 3
        assert outputs["scores"][row].tolist() == [0.0] * 3
    alone = options_served("n_best", questions=[QUESTIONS[0]])
    assert outputs["answers"][1].tolist() == alone["answers"][0].tolist()


def test_max_answer_length_is_held(served, options_served):
    most = OPTIONS["max_answer_length"]
    answers = options_served("n_best", questions=QUESTIONS)["answers"]
    assert max(map(len, answers.flat)) == most
    assert min(map(len, served.ask(QUESTIONS)[0])) > most


def test_token_ids_to_logits(served, untrained_model):
    tokenizer = untrained_model.tokenizer
    inputs = {
        "encoder_token_ids": tokenizer.encode_questions(QUESTIONS[:3]),
        "decoder_token_ids": np.array(
            [[1, 15, 2, 0], [1, 20, 30, 40], [1, 0, 0, 0]], "int32"
        ),
    }
    outputs = served("token_ids", **inputs)
    assert set(outputs) == {"logits"}
    assert outputs["logits"].shape == (3, 4, 72)
    np.testing.assert_allclose(
        outputs["logits"],
        keras.ops.convert_to_numpy(untrained_model(inputs)),
        rtol=1e-4,
        atol=1e-4,
    )


# bfloat16


@pytest.mark.slow
def test_bfloat16_is_half_as_large(bfloat16_version, summing_version):
    def stored(version):
        return tf.train.load_checkpoint(
            str(version / "variables" / "variables")
        )

    types = {}
    for version in (summing_version, bfloat16_version):
        checkpoint = stored(version)
        shapes = checkpoint.get_variable_to_shape_map()
        types[version] = {
            dtype
            for name, dtype in checkpoint.get_variable_to_dtype_map().items()
            # Without what TensorFlow stores of its own.
            if name.endswith(".ATTRIBUTES/VARIABLE_VALUE") and shapes[name]
        }
    assert types == {
        summing_version: {tf.float32},
        bfloat16_version: {tf.bfloat16},
    }
    sizes = [
        sum(path.stat().st_size for path in version.glob("variables/*.data-*"))
        for version in (bfloat16_version, summing_version)
    ]
    assert sizes[0] < 0.6 * sizes[1]


@pytest.mark.slow
def test_bfloat16_answers_nearly_always_the_same(
    bfloat16_served, summing_served
):
    questions = list(SUMS)
    answers, _ = summing_served.ask(questions)
    rounded, status = bfloat16_served.ask(questions)
    assert set(status) == {"OK"}
    assert np.mean(np.equal(answers, rounded)) >= 0.95
    # But it is computed in another precision.
    log_probs, rounded = (
        served("serving_default", questions=questions)["log_probs"]
        for served in (summing_served, bfloat16_served)
    )
    assert rounded.dtype == "float32"
    assert 1e-5 < np.mean(np.abs(log_probs - rounded)) < 0.1


@pytest.mark.slow
def test_bfloat16_without_python(bfloat16_version, bfloat16_served):
    questions = np.array([text.encode() for text in SUMS], object)
    [outputs] = run_without_python(
        bfloat16_version, ("serving_default", {"questions": questions})
    )
    assert outputs["status"].tolist() == [b"OK"] * len(SUMS)
    expected, _ = bfloat16_served.ask(list(SUMS))
    assert [answer.decode() for answer in outputs["answers"]] == expected


# What is written


def test_what_a_version_holds(version, untrained_model):
    assert version.name == "1"
    assert {path.name for path in version.iterdir()} >= {
        "assets.extra",
        "saved_model.pb",
        "variables",
    }
    config = json.loads((version / CONFIG_ASSET).read_text())
    assert from_stored(config) == untrained_model.config


def test_the_warm_up_requests_are_there(version):
    assert (version / CONFIG_ASSET).parent == version / "assets.extra"
    assert (version / WARMUP_ASSET).stat().st_size


# Of what a server reads: dtype and dimensions, -1 for any.
STRINGS = (tf.string, [-1])
SIGNATURES = {
    "serving_default": (
        {"questions": STRINGS},
        {
            "answers": STRINGS,
            "log_probs": (tf.float32, [-1]),
            "status": STRINGS,
        },
    ),
    "n_best": (
        {"questions": STRINGS},
        {
            "answers": (tf.string, [-1, "n"]),
            "log_probs": (tf.float32, [-1, "n"]),
            "scores": (tf.float32, [-1, "n"]),
            "status": STRINGS,
        },
    ),
    "token_ids": (
        {
            "encoder_token_ids": (tf.int32, [-1, -1]),
            "decoder_token_ids": (tf.int32, [-1, -1]),
        },
        {"logits": (tf.float32, [-1, -1, 72])},
    ),
}


@pytest.mark.parametrize("name", SIGNATURES)
@pytest.mark.parametrize(
    ("kind", "beam_width"),
    [("version", 1), ("options_version", 3), ("bfloat16_version", 1)],
)
def test_the_signatures(request, kind, beam_width, name):
    signatures = signature_defs(request.getfixturevalue(kind))
    assert set(signatures) == set(SIGNATURES)
    signature = signatures[name]
    assert signature.method_name == "tensorflow/serving/predict"
    for tensors, expected in zip(
        (signature.inputs, signature.outputs), SIGNATURES[name]
    ):
        assert {
            key: (
                tf.dtypes.as_dtype(tensor.dtype),
                [dim.size for dim in tensor.tensor_shape.dim],
            )
            for key, tensor in tensors.items()
        } == {
            key: (dtype, [beam_width if dim == "n" else dim for dim in dims])
            for key, (dtype, dims) in expected.items()
        }
    # Which the REST interface would give as base64.
    assert not [key for key in signature.outputs if key.endswith("_bytes")]


@pytest.mark.parametrize("name", SIGNATURES)
@pytest.mark.parametrize("batch_size", [0, 1, 5])
def test_every_output_has_the_batch_as_its_first_dimension(
    options_served, name, batch_size
):
    """So that a server can put requests together and take them apart."""
    inputs = (
        {
            "encoder_token_ids": np.ones((batch_size, 3), "int32"),
            "decoder_token_ids": np.ones((batch_size, 2), "int32"),
        }
        if name == "token_ids"
        else {"questions": tf.constant(["1"] * batch_size, tf.string)}
    )
    outputs = options_served(name, **inputs)
    assert {value.shape[0] for value in outputs.values()} == {batch_size}


@pytest.mark.parametrize(
    "kind", ["version", "options_version", "bfloat16_version"]
)
def test_the_graph_is_one_for_a_stock_server(request, kind):
    check_graph(request.getfixturevalue(kind))


def save_graph(path, function):
    module = tf.Module()
    module.function = tf.function(
        function, input_signature=[tf.TensorSpec((None, 3))]
    )
    tf.saved_model.save(module, str(path))


def slice_update(x):
    return keras.ops.slice_update(x, (0, 0), x[:1, :1])


def python_function(x):
    return tf.py_function(lambda y: y, [x], tf.float32)


def numpy_function(x):
    return tf.numpy_function(lambda y: y, [x], tf.float32)


def in_a_branch(x):
    return tf.cond(tf.shape(x)[0] > 2, lambda: slice_update(x), lambda: x)


def jit_compiled(x):
    return tf.function(lambda y: y + 1.0, jit_compile=True)(x)


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (slice_update, "XlaDynamicUpdateSlice"),
        (in_a_branch, "XlaDynamicUpdateSlice"),
        (python_function, "EagerPyFunc"),
        (numpy_function, "PyFunc"),
        (jit_compiled, "marked for XLA"),
    ],
)
def test_graphs_that_are_refused(tmp_path, function, op):
    save_graph(tmp_path, function)
    with pytest.raises(ValueError, match=f"stock TF Serving.*{op}"):
        check_graph(tmp_path)


def test_a_graph_that_is_fine(tmp_path):
    save_graph(
        tmp_path,
        lambda x: tf.function(lambda y: y + 1.0, jit_compile=False)(x),
    )
    check_graph(tmp_path)


def write_graph(folder, ops=(), ops_of_a_function=()):
    """A SavedModel of nodes that nobody has to know: `(op, attributes)`."""
    saved_model = saved_model_pb2.SavedModel()
    graph = saved_model.meta_graphs.add().graph_def
    function = graph.library.function.add()
    function.signature.name = "a_function"
    for nodes, added in (
        (graph.node, ops),
        (function.node_def, ops_of_a_function),
    ):
        for number, op in enumerate(added):
            nodes.add(name=f"node_{number}", op=op)
    (folder / "saved_model.pb").write_bytes(saved_model.SerializeToString())


@pytest.mark.parametrize("place", ["ops", "ops_of_a_function"])
@pytest.mark.parametrize("op", ["Text>Tokenize", "SentencepieceOp"])
def test_ops_of_other_packages_are_refused(tmp_path, place, op):
    write_graph(tmp_path, **{place: ["AddV2", op, "MatMul"]})
    with pytest.raises(ValueError, match=rf"this graph: {op} \(custom\)\.$"):
        check_graph(tmp_path)


def test_ops_that_are_registered_here_alone_are_refused(tmp_path, monkeypatch):
    """As those of a package that somebody imported."""
    monkeypatch.setattr(op_def_registry, "get", lambda op: op)
    write_graph(tmp_path, ["Text>Tokenize"])
    with pytest.raises(ValueError, match="Text>Tokenize"):
        check_graph(tmp_path)


def test_calls_of_functions_are_fine(tmp_path):
    write_graph(tmp_path, ["AddV2", "a_function"], ["MatMul"])
    check_graph(tmp_path)


@pytest.fixture
def quick_write(monkeypatch, version):
    """Exports by copying the version there is, which is quicker."""

    def write(model, answering, weights, path):
        path.mkdir()
        (path / "saved_model.pb").write_bytes(
            (version / "saved_model.pb").read_bytes()
        )

    monkeypatch.setattr(export_model, "_write", write)


def names(folder):
    return sorted(
        path.name
        for path in pathlib.Path(folder).iterdir()
        if path.name != LOCK_FILE
    )


def test_versions_count_up(tmp_path, untrained_model, quick_write):
    for number in ("1", "2"):
        path = export(untrained_model, tmp_path / "new")
        assert path == tmp_path / "new" / number
    assert names(tmp_path / "new") == ["1", "2"]
    # As numbers, and behind the highest, whatever is missing below.
    (tmp_path / "new" / "1").rename(tmp_path / "new" / "10")
    assert export(untrained_model, tmp_path / "new").name == "11"
    # What is no version does not count: a file, a name.
    (tmp_path / "new" / "20").touch()
    (tmp_path / "new" / "30-old").mkdir()
    assert export(untrained_model, str(tmp_path / "new")).name == "12"


@pytest.mark.parametrize("crash", ["_write", "check_graph"])
def test_a_crash_leaves_no_version(
    tmp_path, untrained_model, quick_write, monkeypatch, crash
):
    export(untrained_model, tmp_path)

    def die(*args):
        (tmp_path / "partial").mkdir(exist_ok=True)
        (tmp_path / "partial" / "half").touch()
        raise ValueError("crash")

    with monkeypatch.context() as patch:
        patch.setattr(export_model, crash, die)
        with pytest.raises(ValueError, match="crash"):
            export(untrained_model, tmp_path)
    assert names(tmp_path) == ["1"]
    # Where the process was killed, the next one clears up.
    (tmp_path / "partial").mkdir()
    (tmp_path / "partial" / "half").touch()
    assert export(untrained_model, tmp_path) == tmp_path / "2"
    assert names(tmp_path) == ["1", "2"]
    assert names(tmp_path / "2") == names(tmp_path / "1")


def test_two_exports_at_once(tmp_path, untrained_model, quick_write):
    with folder_lock(tmp_path, "exports"):
        (tmp_path / "partial").mkdir()
        with pytest.raises(UsageError, match="process exports in the folder"):
            export(untrained_model, tmp_path)
        # What the other one writes is left alone.
        assert names(tmp_path) == ["partial"]
    assert export(untrained_model, tmp_path) == tmp_path / "1"


def test_no_number_after_the_last(tmp_path, untrained_model):
    (tmp_path / str(2**63 - 1)).mkdir()
    with pytest.raises(UsageError, match=r"9223372036854775807.*Remove"):
        export(untrained_model, tmp_path)


@contextlib.contextmanager
def full_disk(num_bytes):
    """A limit on the size of files, which fails as a disk does."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk(tmp_path, untrained_model, monkeypatch):
    """Where TensorFlow writes, and where we do."""
    line = r"written to '[^']*': [^\n;]*File too large.*\. Make room there"
    # A small graph, for the model's takes long to trace.
    monkeypatch.setattr(
        export_model,
        "_write",
        lambda model, answering, weights, path: save_graph(
            path, lambda x: x + 1.0
        ),
    )
    with full_disk(1), pytest.raises(UsageError, match=line):
        export(untrained_model, tmp_path)
    assert names(tmp_path) == []

    monkeypatch.setattr(
        export_model,
        "_write",
        lambda model, answering, weights, path: path.mkdir(),
    )
    monkeypatch.setattr(export_model, "check_graph", lambda path: None)
    with full_disk(100), pytest.raises(UsageError, match=line):
        export(untrained_model, tmp_path)
    assert names(tmp_path) == []


def test_a_folder_that_is_a_file(tmp_path, untrained_model):
    (tmp_path / "model").touch()
    with pytest.raises(UsageError, match=r"written to .*model"):
        export(untrained_model, tmp_path / "model")


def test_checksums_as_sha256sum_knows_them(version):
    lines = (version / CHECKSUMS_ASSET).read_text().splitlines()
    files = [path for path in version.rglob("*") if path.is_file()]
    assert len(lines) == len(files) - 1
    for line in lines:
        checksum, name = line.split("  ")
        content = (version / name).read_bytes()
        assert checksum == hashlib.sha256(content).hexdigest()


def test_a_graph_that_a_server_refuses_is_not_exported(
    tmp_path, untrained_model, monkeypatch
):
    def write(model, answering, weights, path):
        save_graph(path, slice_update)

    monkeypatch.setattr(export_model, "_write", write)
    with pytest.raises(ValueError, match="Xla"):
        export(untrained_model, tmp_path)
    assert not [name for name in names(tmp_path) if name.isdecimal()]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": "beams"}, "beams"),
        ({"max_answer_length": 0}, "max_answer_length"),
        ({"precision": "float16"}, "precision 'float16'.*: bfloat16, float32"),
        ({"precision": "mixed_bfloat16"}, "precision 'mixed_bfloat16'"),
    ],
)
def test_options_that_make_no_sense(
    tmp_path, untrained_model, options, message
):
    with pytest.raises(UsageError, match=message):
        export(untrained_model, tmp_path / "model", **options)
    assert not (tmp_path / "model").exists()


def test_another_backend_is_refused(tmp_path, untrained_model, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(UsageError, match="export with KERAS_BACKEND=tensorf"):
        export(untrained_model, tmp_path / "model")
    assert not (tmp_path / "model").exists()
