"""A Keras user's first steps with a model."""

import keras
import numpy as np
import pytest

from tpt_keras.errors import UsageError
from tpt_keras.language_model import XL_PRESETS
from tpt_keras.language_model import TransformerXL
from tpt_keras.models import SequenceToSequence
from tpt_keras.models.presets import PRESETS

# There, compiling takes longer than a few steps.
ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
SMALL = {"hidden_dim": 8, "intermediate_dim": 8, "num_heads": 2}


def small_model(preset):
    if preset in XL_PRESETS:
        sizes = {"num_layers": 1, "vocabulary_size": 9}
        return TransformerXL.from_preset(preset, **sizes)
    if PRESETS[preset].KIND == "lstm":
        return SequenceToSequence.from_preset(preset, hidden_dim=8)
    return SequenceToSequence.from_preset(
        preset, load_weights=False, num_layers=1, **SMALL
    )


@pytest.mark.parametrize(
    "preset",
    [
        "tp_transformer_tensor",
        "tp_transformer_multi_linear",
        "lstm",
        "lstm_attention",
        "transformer_xl_base",
        "tensorized_transformer",
    ],
)
def test_keras_utilities_take_every_kind_of_model(preset):
    model, lines = small_model(preset), []
    model.summary(
        expand_nested=True, print_fn=lambda text, **_: lines.append(text)
    )
    text = "\n".join(lines)
    for layer in model.layers:
        assert layer.name[:20] in text
    clone = keras.models.clone_model(model)
    assert clone.config == model.config
    assert clone.count_params() == model.count_params() > 0
    assert model.get_layer(model.layers[0].name) is model.layers[0]
    names = ["encoder_token_ids", "decoder_token_ids"]
    inputs = {name: keras.Input((5,), name=name) for name in names}
    shape = dict.fromkeys(names, (None, 5))
    if preset in XL_PRESETS:
        inputs, shape = inputs[names[0]], shape[names[0]]
    outputs = model(inputs)
    assert model.compute_output_shape(shape) == outputs.shape
    assert keras.Model(inputs, outputs).count_params() == model.count_params()


def compiled_model():
    model = small_model("tp_transformer")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, run_eagerly=ON_TENSORFLOW)
    return model


QUESTIONS = ["1+1", "2+25"]
ANSWERS = ["2", "27"]


@pytest.mark.slow_on_jax
def test_fit_and_evaluate_take_strings():
    model = compiled_model()
    tokenizer = model.tokenizer
    token_ids = tokenizer.encode_batch(ANSWERS)
    inputs = {
        "encoder_token_ids": tokenizer.encode_batch(QUESTIONS),
        "decoder_token_ids": token_ids[:, :-1],
    }
    log_probs = keras.ops.log_softmax(model(inputs))
    losses = -np.take_along_axis(
        keras.ops.convert_to_numpy(log_probs), token_ids[:, 1:, None], -1
    )
    # Padding has no weight.
    expected = np.mean(losses[token_ids[:, 1:] != tokenizer.pad_id])
    before = model.evaluate(QUESTIONS, ANSWERS, verbose=0)
    np.testing.assert_allclose(before, expected, rtol=1e-5)
    pairs = (QUESTIONS, ANSWERS)
    found = model.fit(
        np.array(QUESTIONS), ANSWERS, validation_data=pairs, verbose=0
    )
    after = model.evaluate(*pairs, verbose=0)
    assert after < before
    np.testing.assert_allclose(found.history["val_loss"], after, rtol=1e-5)


@pytest.mark.slow_on_jax
def test_a_question_has_its_weight():
    model = compiled_model()
    losses = [
        model.evaluate([question], [answer], verbose=0)
        for question, answer in zip(QUESTIONS, ANSWERS)
    ]
    tokens = np.array([len(answer) + 1 for answer in ANSWERS])
    weights = np.array([3.0, 0.5])
    expected = np.dot(losses, weights * tokens) / tokens.sum()
    found = model.evaluate(QUESTIONS, ANSWERS, sample_weight=weights, verbose=0)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    validation = [QUESTIONS, ANSWERS, weights[:, None]]
    history = model.fit(
        QUESTIONS,
        ANSWERS,
        sample_weight=np.zeros(2),
        validation_data=validation,
        verbose=0,
    ).history
    # Without a weight nothing is learned.
    assert history["loss"] == [0.0]
    np.testing.assert_allclose(history["val_loss"], expected, rtol=1e-5)


@pytest.mark.parametrize(
    "use",
    [
        lambda model: model.predict(np.array(QUESTIONS)),
        lambda model: model.predict({"encoder_token_ids": QUESTIONS}),
        lambda model: model.generate(QUESTIONS),
        lambda model: model.fit(QUESTIONS, np.ones((2, 3))),
        lambda model: model.fit(["%"], ["1"]),
        lambda model: model.fit([], []),
        lambda model: model.fit(QUESTIONS),
        lambda model: model.fit(QUESTIONS, [2, 27]),
        lambda model: model.fit(QUESTIONS, ["2", "1" * 99]),
        lambda model: model.fit(QUESTIONS, ["2", float("nan")]),
        lambda model: model.fit("12", "34"),
        lambda model: model.fit(QUESTIONS, ANSWERS, sample_weight=np.ones(3)),
        lambda model: model(QUESTIONS),
    ],
)
def test_strings_in_place_of_token_ids_are_refused(use):
    with pytest.raises(UsageError):
        use(compiled_model())


@pytest.mark.skipif(not ON_TENSORFLOW, reason="needs a dataset")
def test_dataset_of_strings_is_refused():
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices((QUESTIONS, ANSWERS)).batch(1)
    with pytest.raises(UsageError):
        compiled_model().fit(dataset)


@pytest.mark.skipif(not ON_TENSORFLOW, reason="counts graphs")
def test_first_fit_traces_the_step_once():
    traces = []

    def loss(y_true, y_pred):
        traces.append(y_pred)
        return keras.losses.sparse_categorical_crossentropy(
            y_true, y_pred, from_logits=True
        )

    model = small_model("tp_transformer")
    model.compile("adam", loss)
    ids = np.ones((4, 3), "int32")
    inputs = {"encoder_token_ids": ids, "decoder_token_ids": ids}
    model.fit(inputs, ids, batch_size=2, verbose=0)
    assert len(traces) == 1
