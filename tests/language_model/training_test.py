import functools
import json
import math

import keras
import numpy as np
import pytest
from keras import ops

from tests.experiments import command
from tests.refusals import refused
from tests.training.trainings import assert_same_weights
from tests.training.trainings import train_in_two
from tpt_keras.errors import UsageError
from tpt_keras.language_model import XL_PRESETS
from tpt_keras.language_model import TransformerXL
from tpt_keras.language_model import TransformerXLConfig
from tpt_keras.language_model.training import TextLearner
from tpt_keras.language_model.training import TextSegments
from tpt_keras.language_model.training import evaluate_segments
from tpt_keras.language_model.training import evaluate_text
from tpt_keras.language_model.training import language_model_trainer
from tpt_keras.models import PRESETS
from tpt_keras.models.configs import from_stored
from tpt_keras.models.stored import load_model
from tpt_keras.training import train as training_module
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.state.logs import read_metrics

train = functools.partial(training_module.train, learner_class=TextLearner)

pytestmark = pytest.mark.usefixtures("without_graphs")

CONFIG = TransformerXLConfig(
    vocabulary_size=204,
    hidden_dim=8,
    intermediate_dim=8,
    num_heads=2,
    num_layers=1,
    memory_length=6,
)
TEXT = b"abcd" * 100 + b"\xe4"


@pytest.fixture
def training(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(TEXT)
    return TrainingConfig.from_flat(
        text_file=str(path),
        segment_length=5,
        train_steps=6,
        batch_size=2,
        learning_rate=0.02,
        steps_per_checkpoint=3,
        steps_per_evaluation=3,
    )


@pytest.fixture(scope="module")
def trainer():
    keras.utils.set_random_seed(1)
    model = TransformerXL(CONFIG.replace(vocabulary=b"abcd"), batch_size=2)
    trainer = language_model_trainer(model)
    trainer.compile("sgd", jit_compile=False)
    return trainer


@pytest.fixture(scope="module")
def segments():
    return TextSegments(b"abcd" * 20 + b"a", b"abcd", batch_size=2, length=5)


def memory_of(model):
    return [ops.convert_to_numpy(x) for x in keras.tree.flatten(model.memory)]


# The memory of mixed_bfloat16 is none of NumPy's dtypes.
@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_resumed_training_keeps_its_memory(
    training, precision, tmp_path, monkeypatch
):
    training = training.replace(precision=precision)
    whole = train(CONFIG, training, tmp_path / "whole")
    again = train_in_two(
        monkeypatch, train, CONFIG, training, tmp_path / "parts"
    )
    assert_same_weights(again, whole)
    assert max(np.abs(values).max() for values in memory_of(again)) > 0
    rows = read_metrics(tmp_path / "whole")
    for prefix in ("", "val_"):
        assert rows[-1][f"{prefix}bits_per_character"] == pytest.approx(
            rows[-1][f"{prefix}loss"] / math.log(2), rel=1e-5
        )
    assert rows[-1]["tokens_per_second"] > 0

    record = json.loads((tmp_path / "whole/config.json").read_text())
    config = from_stored(record["model"])
    assert bytes(config.vocabulary) == b"abcd\xe4"
    assert config.vocabulary_size == 5
    # A saved model remembers nothing.
    saved = load_model(tmp_path / "whole", classes=(TransformerXL,))
    assert saved.config == config
    assert saved.batch_size is None
    with refused(part="load_language_model"):
        load_model(tmp_path / "whole")

    # Another training starts with the weights.
    train(
        CONFIG,
        training.replace(init_from=str(tmp_path / "whole"), train_steps=1),
        tmp_path / "start",
    )
    assert read_metrics(tmp_path / "start")[0]["loss"] < rows[0]["loss"]

    # The text is another one under the same name.
    (tmp_path / "text").write_bytes(TEXT[::-1])
    with pytest.raises(UsageError):
        train(CONFIG, training, tmp_path / "whole")


@pytest.mark.slow
def test_training_without_a_memory_resumes(training, tmp_path, monkeypatch):
    config = XL_PRESETS["tensorized_transformer"].replace(
        hidden_dim=8,
        intermediate_dim=8,
        key_dim=2,
        num_layers=1,
        attention_options={"max_length": 5, "output_dim": 8},
    )
    model = train_in_two(
        monkeypatch, train, config, training, tmp_path / "model"
    )
    row = read_metrics(tmp_path / "model")[-1]
    assert np.isfinite(row["val_bits_per_character"])
    saved = load_model(tmp_path / "model", classes=(TransformerXL,))
    assert_same_weights(saved.trainable_weights, model.trainable_weights)


@pytest.mark.slow
def test_evaluation_has_its_own_memory(trainer, segments):
    model = trainer.model
    batch, _ = next(segments.iterate())
    model(batch)
    before = memory_of(model)
    assert np.abs(before[-1]).max() > 0
    result = evaluate_segments(trainer, segments)
    assert evaluate_segments(trainer, segments) == result
    assert_same_weights(memory_of(model), before)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`")
def test_a_frozen_model_is_evaluated_alike():
    keras.utils.set_random_seed(2)
    model = TransformerXL(CONFIG.replace(vocabulary=b"abcd"))
    text = np.frombuffer(TEXT[:400], "uint8")
    arguments = (text, ["test"], 1, 5)
    expected = evaluate_text(model, *arguments)
    model.trainable = False
    assert evaluate_text(model, *arguments) == expected
    model.quantize("int8")
    with pytest.raises(UsageError):
        evaluate_text(model, *arguments)


@pytest.mark.slow
def test_bits_per_character_are_those_of_the_model(trainer, segments):
    model = trainer.model
    memory, bits = model.init_memory(2), []
    for token_ids, following in segments.iterate(num_epochs=1):
        logits, memory = model(token_ids, memory)
        probabilities = ops.convert_to_numpy(ops.softmax(logits))
        found = np.take_along_axis(probabilities, following[..., None], -1)
        bits.append(-np.log2(found))
    result = evaluate_segments(trainer, segments)
    assert result["bits_per_character"] == pytest.approx(
        np.mean(bits), rel=1e-5
    )


@pytest.mark.parametrize(
    ("model_config", "changes", "field"),
    [
        (CONFIG, {"text_file": "/"}, "text_file"),
        (CONFIG, {"segment_length": 1000}, "batch_size"),
        (
            CONFIG,
            {"gradient_accumulation_steps": 2},
            "gradient_accumulation_steps",
        ),
        (
            XL_PRESETS["tensorized_transformer"],
            {"segment_length": 33},
            "segment_length",
        ),
        (PRESETS["tp_transformer_tiny"], {}, "text_file"),
        (CONFIG, {"text_file": "", "modules": ("m",)}, "text_file"),
    ],
)
def test_invalid_training_is_refused(
    training, tmp_path, model_config, changes, field
):
    with refused(field):
        train(model_config, training.replace(**changes), tmp_path / "model")


@pytest.mark.slow
def test_commands_evaluate_and_continue_a_text(training, tmp_path, capfd):
    run = functools.partial(command.run_here, capfd)
    folder = tmp_path / "model"
    train(CONFIG, training.replace(train_steps=3), folder)
    result = run("evaluate", f"--model={folder}", "--batch_size=1").succeeded()
    assert "bits per character" in result.stdout
    result = run(
        "continue_text", f"--model={folder}", "--prompt=abc", "--length=9"
    ).succeeded()
    assert result.stdout.startswith("abc")
    # A language model answers no questions.
    result = run("solve", f"--model={folder}", "--question=1")
    assert result.status == 2
    assert "continue_text" in result.stderr
