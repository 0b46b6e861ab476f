import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.serving.export.c_api_test import run as run_without_python
from tpt_keras.models import Transformer
from tpt_keras.models.compressed_model import CompressedModel
from tpt_keras.serving.export import export

QUESTIONS = ["What is 1 + 1?", "Solve 2*x = 4 for x.", "7", "x" * 160]


@pytest.fixture(scope="module")
def model():
    """A model whose answers differ, of weights that int8 has to round."""
    keras.utils.set_random_seed(4)
    return Transformer.from_preset(
        "tp_transformer_tiny",
        num_layers=1,
        hidden_dim=48,
        intermediate_dim=96,
        num_heads=2,
        max_answer_length=4,
    )


@pytest.fixture(scope="module")
def rounded_model(model):
    rounded = Transformer(model.config)
    CompressedModel.of(model).assign_to(rounded)
    return rounded


@pytest.fixture(scope="module")
def version(model, tmp_path_factory):
    return export(model, tmp_path_factory.mktemp("int8"), precision="int8")


def answers(loaded):
    signature = loaded.signatures["serving_default"]
    found = signature(questions=tf.constant(QUESTIONS))["answers"]
    return [answer.decode() for answer in found.numpy()]


def test_answers_are_those_of_the_rounded_weights(version, rounded_model):
    expected = rounded_model.solve(QUESTIONS)
    assert len(set(expected)) > 1
    assert answers(tf.saved_model.load(version)) == expected


def test_the_logits_are_those_of_the_rounded_weights(
    version, model, rounded_model
):
    loaded = tf.saved_model.load(version)
    inputs = {
        "encoder_token_ids": np.array([[1, 5, 9, 2], [1, 7, 2, 0]], "int32"),
        "decoder_token_ids": np.array([[1, 6], [1, 8]], "int32"),
    }
    logits = loaded.signatures["token_ids"](**inputs)["logits"].numpy()
    expected = keras.ops.convert_to_numpy(rounded_model(inputs))
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
    unrounded = keras.ops.convert_to_numpy(model(inputs))
    assert np.abs(logits - unrounded).max() > 1e-3


def test_it_is_small(version, model):
    variables = tf.train.load_checkpoint(str(version / "variables/variables"))
    shapes = variables.get_variable_to_shape_map()
    matrices = {
        name: dtype
        for name, dtype in variables.get_variable_to_dtype_map().items()
        if np.prod(shapes[name]) >= 48 * 48
    }
    assert set(matrices.values()) == {tf.int8}
    (data,) = version.glob("variables/*.data-*")
    assert data.stat().st_size < 0.35 * 4 * model.count_params()


def test_it_is_loaded_twice_at_once(version, rounded_model):
    expected = rounded_model.solve(QUESTIONS)
    first, second = (tf.saved_model.load(version) for _ in range(2))
    assert answers(first) == expected
    del first
    assert answers(second) == expected


@pytest.mark.slow
def test_without_python(version, rounded_model):
    questions = np.array([text.encode() for text in QUESTIONS], object)
    [outputs] = run_without_python(
        version, ("serving_default", {"questions": questions})
    )
    assert [
        answer.decode() for answer in outputs["answers"]
    ] == rounded_model.solve(QUESTIONS)
