import pytest
import tensorflow as tf

from tpt_keras.errors import UsageError
from tpt_keras.models import Transformer
from tpt_keras.models.load_model import load_model
from tpt_keras.serving.export import export

# Quantizing takes seconds.
pytestmark = pytest.mark.slow

QUESTIONS = ["What is 1 + 1?", "Solve 2*x = 4 for x."]


@pytest.fixture(scope="module")
def quantized(tmp_path_factory):
    """A quantized model that was saved and loaded."""
    model = Transformer.from_preset(
        "tp_transformer_tiny",
        num_layers=1,
        hidden_dim=16,
        intermediate_dim=32,
        num_heads=2,
        max_answer_length=4,
    )
    with pytest.warns(UserWarning, match="does not have a `quantize` method"):
        model.quantize("int8")
    folder = tmp_path_factory.mktemp("models")
    model.save(folder / "model.keras")
    return load_model(folder)


def test_stock_server_can_run_a_quantized_model(quantized, tmp_path):
    # `export` itself refuses a graph that such a server cannot run.
    version = export(quantized, tmp_path)
    signature = tf.saved_model.load(version).signatures["serving_default"]
    answers = signature(questions=tf.constant(QUESTIONS))["answers"]
    answers = [answer.decode() for answer in answers.numpy()]
    assert answers == quantized.solve(QUESTIONS)
    # The maps are there as bytes.
    variables = tf.train.load_checkpoint(str(version / "variables/variables"))
    dtypes = variables.get_variable_to_dtype_map().values()
    assert list(dtypes).count(tf.int8) >= 20


def test_precision_of_a_quantized_model_stays(quantized, tmp_path):
    with pytest.raises(UsageError, match="cannot be changed to bfloat16"):
        export(quantized, tmp_path, precision="bfloat16")
    assert not any(tmp_path.iterdir())
