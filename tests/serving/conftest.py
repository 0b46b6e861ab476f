"""Exported models, each made once, because an export takes seconds."""

import keras
import pytest

from tests.serving.served import Served
from tpt_keras.decoding import BeamSampler
from tpt_keras.models import Transformer
from tpt_keras.serving.export import export

MAX_ANSWER_LENGTH = 2
SAMPLER = BeamSampler(3, length_penalty=0.6)
SUMS = {f"{a}+{b}": str(a + b) for a in range(10) for b in range(10)}


@pytest.fixture(scope="session")
def untrained_model():
    """A model whose answers are long and differ from question to question."""
    keras.utils.set_random_seed(5)
    return Transformer.from_preset(
        "tp_transformer_tiny",
        hidden_dim=16,
        intermediate_dim=32,
        num_heads=2,
        num_layers=1,
        max_answer_length=6,
    )


@pytest.fixture(scope="session")
def version(untrained_model, tmp_path_factory):
    """`untrained_model`, exported with the defaults."""
    return export(untrained_model, tmp_path_factory.mktemp("exports") / "model")


@pytest.fixture(scope="session")
def served(version):
    return Served(version)


@pytest.fixture(scope="session")
def summing_model():
    """A model that knows `SUMS`, whose answers end at different steps."""
    keras.utils.set_random_seed(5)
    model = Transformer.from_preset(
        "tp_transformer_tiny",
        hidden_dim=32,
        intermediate_dim=64,
        num_heads=2,
        num_layers=1,
    )
    tokenizer = model.tokenizer
    answers = tokenizer.encode_questions(list(SUMS.values()))
    model.compile(
        keras.optimizers.Adam(5e-3, global_clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, ignore_class=tokenizer.pad_id
        ),
        jit_compile=False,
    )
    model.fit(
        {
            "encoder_token_ids": tokenizer.encode_questions(list(SUMS)),
            "decoder_token_ids": answers[:, :-1],
        },
        answers[:, 1:],
        batch_size=len(SUMS),
        epochs=60,
        verbose=0,
    )
    return model


@pytest.fixture(scope="session")
def beam_version(summing_model, tmp_path_factory):
    """`summing_model`, exported with `SAMPLER`."""
    return export(
        summing_model,
        tmp_path_factory.mktemp("exports"),
        MAX_ANSWER_LENGTH,
        SAMPLER,
    )


@pytest.fixture(scope="session")
def beam_served(beam_version):
    return Served(beam_version)


@pytest.fixture(scope="session")
def bfloat16_version(summing_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports")
    return export(summing_model, folder, precision="bfloat16")


@pytest.fixture(scope="session")
def int8_version(summing_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports")
    return export(summing_model, folder, precision="int8")
