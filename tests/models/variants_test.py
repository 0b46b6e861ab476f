"""Every attention mechanism with every binding, through a model's life."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from tests.layer_test_case import saved_and_loaded
from tpt_keras.layers import ATTENTION_POSITIONS
from tpt_keras.layers import BINDINGS
from tpt_keras.layers import MECHANISMS
from tpt_keras.models import PRESETS
from tpt_keras.models import Transformer
from tpt_keras.models.weights import copy_model

QUESTIONS = ["1 + 1?", "r(7.25).", "-731"]
# Together every mechanism and every binding; the other pairs take minutes.
ALWAYS = (
    ("dot_product", "discrete"),
    ("relative", "hadamard"),
    ("transformer_xl", "none"),
    ("multi_linear", "tensor"),
    ("relational", "none"),
    ("dot_product", "gated"),
    ("transformer_xl", "circular_convolution"),
)
every_variant = pytest.mark.parametrize(
    ("attention", "binding", "preset"),
    [
        *(
            pytest.param(
                *pair,
                "tp_transformer",
                marks=() if pair in ALWAYS else pytest.mark.exhaustive,
            )
            for pair in itertools.product(MECHANISMS, BINDINGS)
        ),
        ("dot_product", "hadamard", "tp_transformer_numbers"),
        # Dot products with these positions.
        ("rotary", "hadamard", "tp_transformer"),
    ],
)


def make_model(attention, binding, preset="tp_transformer", dtype=None):
    keras.utils.set_random_seed(3)
    positions = "sinusoidal" if attention == "dot_product" else "none"
    if attention in ATTENTION_POSITIONS:
        attention, positions = "dot_product", attention
    config = PRESETS[preset].replace(
        hidden_dim=16,
        intermediate_dim=16,
        num_heads=2,
        num_layers=1,
        attention=attention,
        binding=binding,
        positions=positions,
        max_question_length=24,
    )
    model = Transformer(config, dtype=dtype)
    for weight in model.trainable_weights:
        if "layer_norm" not in weight.path:
            # So large that answers differ and some end.
            weight.assign(weight + 0.3 * keras.random.normal(weight.shape))
    return model


def inputs_of(model):
    ids = model.tokenizer.encode_questions(QUESTIONS)
    return {"encoder_token_ids": ids, "decoder_token_ids": ids}


@every_variant
@pytest.mark.slow_on_jax
def test_cached_steps_give_the_models_logits(attention, binding, preset):
    check_cached_steps(make_model(attention, binding, preset))


def test_cached_steps_of_a_window_give_the_models_logits():
    model = make_model("dot_product", "hadamard")
    config = model.config.replace(attention_options={"sliding_window": 3})
    check_cached_steps(copy_model(model, "float32", config))


def check_cached_steps(model):
    inputs = inputs_of(model)
    ids = inputs["decoder_token_ids"]
    expected = ops.convert_to_numpy(model(inputs))
    cache = model.init_cache(ids, max_length=ids.shape[1])
    for leaf in keras.tree.flatten(cache):
        assert leaf.shape[0] == len(QUESTIONS)
    for index in range(ids.shape[1]):
        logits, cache = model.decode_step(ids[:, index], cache, index)
        is_real = ids[:, index] != model.tokenizer.pad_id
        np.testing.assert_allclose(
            ops.convert_to_numpy(logits)[is_real],
            expected[is_real, index],
            atol=1e-4,
        )


@every_variant
@pytest.mark.slow
def test_padding_has_no_influence(attention, binding, preset):
    model = make_model(attention, binding, preset)
    alone = model.tokenizer.encode_questions(QUESTIONS[-1:])
    beside = model.tokenizer.encode_questions(QUESTIONS)[-1:]
    assert beside.shape[1] > alone.shape[1]
    decoder = {"decoder_token_ids": alone}
    np.testing.assert_allclose(
        ops.convert_to_numpy(model({"encoder_token_ids": alone, **decoder})),
        ops.convert_to_numpy(model({"encoder_token_ids": beside, **decoder})),
        atol=1e-5,
    )


@every_variant
@pytest.mark.slow
def test_trains_in_mixed_precision_and_is_saved(attention, binding, preset):
    model = make_model(attention, binding, preset, dtype="mixed_bfloat16")
    inputs = inputs_of(model)
    model.compile(
        "sgd",
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        # TensorFlow's graphs take ten times as long to make as they run.
        run_eagerly=keras.backend.backend() == "tensorflow",
    )
    before = [ops.convert_to_numpy(w) for w in model.trainable_weights]
    model.fit(inputs, inputs["decoder_token_ids"], verbose=0)
    for weight, old in zip(model.trainable_weights, before):
        assert np.any(ops.convert_to_numpy(weight) != old), weight.path
    loaded = saved_and_loaded(model)
    assert loaded.config == model.config
    np.testing.assert_array_equal(
        ops.convert_to_numpy(loaded(inputs)),
        ops.convert_to_numpy(model(inputs)),
    )


@pytest.mark.parametrize(
    ("attention", "binding"), [*ALWAYS[1:], ("rotary", "hadamard")]
)
@pytest.mark.slow
@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="needs SavedModel"
)
def test_is_exported(attention, binding, tmp_path):
    from tpt_keras.serving import SavedModel
    from tpt_keras.serving.export import export

    model = make_model(attention, binding)
    answers = SavedModel(export(model, tmp_path)).answer(QUESTIONS)
    assert [answer.text for answer in answers] == model.solve(QUESTIONS)


@pytest.mark.slow
@pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="Other backends have free shapes."
)
@pytest.mark.filterwarnings("ignore:.*`native_serialization`")
@pytest.mark.parametrize(
    "attention", ["relative", "transformer_xl", "relational"]
)
def test_forward_pass_is_exported_from_jax(tiny_config, attention, tmp_path):
    import tensorflow as tf

    model = Transformer(tiny_config.replace(attention=attention))
    model.export(tmp_path, verbose=False)
    ids = np.array([[1, 5, 6, 7, 2]], "int32")
    inputs = {"encoder_token_ids": ids, "decoder_token_ids": ids[:, :3]}
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_allclose(
        loaded.serve(inputs),
        keras.ops.convert_to_numpy(model(inputs)),
        atol=1e-4,
    )
