import json
import pathlib
import subprocess
import sys

import keras
import pytest
import tensorflow as tf

from tpt_keras.data_generators.vocabulary import END
from tpt_keras.data_generators.vocabulary import PAD
from tpt_keras.data_generators.vocabulary import START
from tpt_keras.models import Transformer
from tpt_keras.models import TransformerConfig
from tpt_keras.serving import export as export_module
from tpt_keras.serving.export import check_graph
from tpt_keras.serving.export import export
from tpt_keras.serving.versions import CONFIG_ASSET

QUESTIONS = [
    "What is the units digit of 23?",
    "What is the thousands digit of 8234?",
    "1",
    "What is the hundreds digit of 123456?",
    "Solve 2*x + 3 = 0 for x.",
    "x" * 160,
    "What is the tens digit of 31859?",
]


@pytest.fixture(scope="module")
def untrained_model():
    """A model whose answers are long and differ from question to question."""
    keras.utils.set_random_seed(5)
    return Transformer.from_preset(
        "tp_transformer_tiny",
        hidden_dim=16,
        intermediate_dim=32,
        num_heads=2,
        num_layers=1,
    )


@pytest.fixture(scope="module")
def version(untrained_model, tmp_path_factory):
    return export(untrained_model, tmp_path_factory.mktemp("exports") / "model")


@pytest.fixture(scope="module")
def signature(version):
    return load_signature(version)


def load_signature(path):
    loaded = tf.saved_model.load(str(path))
    signature = loaded.signatures["serving_default"]
    # The signature alone does not keep the variables alive.
    signature.kept = loaded
    return signature


def ask(signature, questions):
    """Answers and statuses of questions: strings, or bytes of any kind."""
    outputs = signature(questions=tf.constant(questions, tf.string))
    assert set(outputs) == {"answers", "status"}
    return tuple(
        [value.decode() for value in outputs[name].numpy()]
        for name in ("answers", "status")
    )


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7])
def test_answers_as_the_model_does(signature, untrained_model, batch_size):
    questions = QUESTIONS[:batch_size]
    expected = untrained_model.solve(questions)
    # The model has something to say, and not always the same.
    assert len(set(expected)) >= min(batch_size, 3)
    assert all(expected)
    assert ask(signature, questions) == (expected, ["OK"] * batch_size)


def test_a_trained_model_answers_as_it_does(trained_model, tmp_path):
    expected = trained_model.solve(QUESTIONS)
    assert any(len(answer) == 1 for answer in expected)
    signature = load_signature(export(trained_model, tmp_path))
    assert ask(signature, QUESTIONS)[0] == expected


def test_no_questions(signature):
    assert ask(signature, []) == ([], [])


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
    signature, untrained_model, bad, status
):
    assert ask(signature, [bad]) == ([""], [status])
    # Without the longest, so that a bad one could set the batch's length.
    good = [QUESTIONS[0], QUESTIONS[2], QUESTIONS[4]]
    expected = untrained_model.solve(good)
    assert ask(signature, [good[0], bad, *good[1:], bad]) == (
        [expected[0], "", *expected[1:], ""],
        ["OK", status, "OK", "OK", status],
    )


def test_nothing_but_bad_questions(signature):
    assert ask(signature, [b"\xff", "", "%", "x" * 161]) == (
        [""] * 4,
        ["INVALID_UTF8", "EMPTY", "UNKNOWN_CHARACTER", "TOO_LONG"],
    )


def test_the_names_of_special_symbols_are_just_characters(
    signature, untrained_model
):
    """They must not become the symbols, which would end a question."""
    questions = ["<pad>", "1<end>2", "<start>"]
    assert ask(signature, questions)[0] == untrained_model.solve(questions)


def test_the_limits_of_a_model(tmp_path):
    keras.utils.set_random_seed(6)
    model = Transformer.from_preset(
        "tp_transformer_tiny",
        hidden_dim=8,
        intermediate_dim=8,
        num_heads=1,
        num_layers=1,
        max_question_length=5,
        max_answer_length=3,
    )
    answers, status = ask(
        load_signature(export(model, tmp_path)), ["12345", "123456"]
    )
    assert status == ["OK", "TOO_LONG"]
    # The end symbol takes a place, which is another character's here.
    assert answers[0] == model.solve(["12345"])[0]
    assert len(answers[0]) <= 4


def test_another_vocabulary(tmp_path):
    """Other symbols in another order, and rows without a symbol."""
    keras.utils.set_random_seed(8)
    config = TransformerConfig(
        hidden_dim=8,
        intermediate_dim=16,
        num_heads=2,
        num_layers=1,
        max_answer_length=6,
        vocabulary=("é", "<unknown>", PAD, "b", END, "½", START, "a", "漢"),
        vocabulary_size=12,
    )
    model = Transformer(config)
    questions = ["ab", "é½漢", "漢" * 160, "b", "aé", "½½½", "ba", "éab漢"]
    expected = model.solve(questions)
    assert len(set(expected)) > 2
    # Also of a row that no symbol belongs to: both say so in the same way.
    assert any("\N{REPLACEMENT CHARACTER}" in answer for answer in expected)
    signature = load_signature(export(model, tmp_path))
    assert ask(signature, [*questions, "abc"]) == (
        [*expected, ""],
        ["OK"] * len(questions) + ["UNKNOWN_CHARACTER"],
    )


def test_what_a_version_holds(version, untrained_model):
    assert version.name == "1"
    assert {path.name for path in version.iterdir()} >= {
        "assets.extra",
        "saved_model.pb",
        "variables",
    }
    config = json.loads((version / CONFIG_ASSET).read_text())
    assert TransformerConfig(**config) == untrained_model.config


def test_the_signature(signature):
    specs = signature.structured_input_signature[1]
    assert set(specs) == {"questions"}
    assert specs["questions"].dtype == tf.string
    assert specs["questions"].shape.as_list() == [None]
    for name in ("answers", "status"):
        assert signature.structured_outputs[name].dtype == tf.string


def test_the_graph_is_one_for_a_stock_server(version):
    check_graph(version)


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


@pytest.fixture
def quick_write(monkeypatch, version):
    """Exports by copying the version there is, which is quicker."""

    def write(model, path):
        path.mkdir()
        (path / "saved_model.pb").write_bytes(
            (version / "saved_model.pb").read_bytes()
        )

    monkeypatch.setattr(export_module, "_write", write)


def names(folder):
    return sorted(path.name for path in pathlib.Path(folder).iterdir())


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
        patch.setattr(export_module, crash, die)
        with pytest.raises(ValueError, match="crash"):
            export(untrained_model, tmp_path)
    assert [name for name in names(tmp_path) if name.isdecimal()] == ["1"]
    assert export(untrained_model, tmp_path) == tmp_path / "2"
    # And nothing of the half is left.
    assert names(tmp_path) == ["1", "2"]
    assert names(tmp_path / "2") == names(tmp_path / "1")


def test_a_graph_that_a_server_refuses_is_not_exported(
    tmp_path, untrained_model, monkeypatch
):
    def write(model, path):
        save_graph(path, slice_update)

    monkeypatch.setattr(export_module, "_write", write)
    with pytest.raises(ValueError, match="Xla"):
        export(untrained_model, tmp_path)
    assert not [name for name in names(tmp_path) if name.isdecimal()]


@pytest.mark.slow
def test_needs_tensorflow_alone(version, untrained_model, tmp_path):
    script = (
        "import json, sys\n"
        "import tensorflow as tf\n"
        "loaded = tf.saved_model.load(sys.argv[1])\n"
        "outputs = loaded.signatures['serving_default'](\n"
        "    questions=tf.constant(json.loads(sys.argv[2])))\n"
        "assert 'tpt_keras' not in sys.modules\n"
        "print(json.dumps([a.decode() for a in outputs['answers'].numpy()]))\n"
    )
    # From a folder where this project could not be imported by accident.
    output = subprocess.run(
        [
            sys.executable,
            "-c",
            script,
            str(version.resolve()),
            json.dumps(QUESTIONS),
        ],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert json.loads(output) == untrained_model.solve(QUESTIONS)
