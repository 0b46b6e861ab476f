"""Exported models, each made once, because an export takes seconds."""

import keras
import pytest

from tests.serving.served import Served
from tpt_keras.decoding import BeamSampler
from tpt_keras.models import Transformer
from tpt_keras.serving.export import export

MAX_ANSWER_LENGTH = 5
SAMPLER = BeamSampler(3)
SUMS = [f"{a}+{b}" for a in range(10) for b in range(10)]


@pytest.fixture(scope="session")
def model(tiny_config):
    """An untrained model whose answers differ and end at different steps."""
    keras.utils.set_random_seed(17)
    return Transformer(
        tiny_config.replace(
            digit_places=True, answer_order="units_first", max_answer_length=6
        )
    )


@pytest.fixture(scope="session")
def version(model, tmp_path_factory):
    """`model`, exported with the defaults."""
    return export(model, tmp_path_factory.mktemp("exports") / "model")


@pytest.fixture(scope="session")
def served(version):
    return Served(version)


@pytest.fixture(scope="session")
def beam_version(model, tmp_path_factory):
    """`model`, exported with `SAMPLER`."""
    folder = tmp_path_factory.mktemp("exports")
    return export(model, folder, MAX_ANSWER_LENGTH, SAMPLER)


@pytest.fixture(scope="session")
def beam_served(beam_version):
    return Served(beam_version)


@pytest.fixture(scope="session")
def bfloat16_version(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports")
    return export(model, folder, precision="bfloat16")
