import collections
import shutil

import pytest

from tests.conftest import MODULE
from tests.data_generators.list_source import numbered_source
from tpt_keras.data_generators.problem_batches import ProblemBatches
from tpt_keras.data_generators.problem_mixture import ProblemMixture
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer
from tpt_keras.training import training_data
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.training_data import data_fingerprints
from tpt_keras.training.training_data import module_mix
from tpt_keras.training.training_data import training_sources

NAMES = {"a": "numbers__gcd", "b": "numbers__place_value", "c": "algebra__x"}


@pytest.mark.parametrize("step", [0, 3, 40])
def test_module_mix_is_what_a_batch_holds(step):
    tokenizer = CharacterTokenizer()
    config = TrainingConfig.from_flat(
        modules=tuple(NAMES.values()), data_dir="data", train_steps=1
    )
    batches = ProblemBatches(
        ProblemMixture(
            [numbered_source(60, name) for name in NAMES], [3, 2, 1]
        ),
        tokenizer,
        batch_size=16,
        seed=5,
    )
    inputs, _ = next(batches.iterate(step))
    questions = map(tokenizer.decode, inputs["encoder_token_ids"])
    counts = collections.Counter(NAMES[question[0]] for question in questions)
    assert len(counts) > 1
    mix = module_mix(batches, config, step)
    parts = [part.split(" ") for part in mix.split(", ")]
    assert {name: int(count) for name, count in parts} == counts
    # What there is most of comes first.
    assert [int(count) for _, count in parts] == sorted(
        counts.values(), reverse=True
    )


@pytest.fixture
def fingerprint(monkeypatch):
    """The fingerprint of a source, as if a module's problems were its."""

    def fingerprint(source):
        monkeypatch.setattr(
            training_data, "problem_sources", lambda *args: {"m": source}
        )
        config = TrainingConfig.from_flat(
            modules=("m",), data_dir="data", train_steps=1
        )
        return data_fingerprints(training_sources(config))["m"]

    return fingerprint


def test_the_fingerprint_of_the_data(fingerprint):
    one = fingerprint(numbered_source(1000, "a"))
    assert one == fingerprint(numbered_source(1000, "a"))
    # Other problems, and another number of them.
    assert one != fingerprint(numbered_source(1000, "b"))
    assert one != fingerprint(numbered_source(1001, "a"))
    assert fingerprint(numbered_source(1, "a")) != one


def test_the_fingerprint_is_that_of_the_data_wherever_it_lies(
    place_value_data, tiny_training, tmp_path
):
    [(module, fingerprint)] = data_fingerprints(
        training_sources(tiny_training)
    ).items()
    assert module == MODULE
    moved = tmp_path / "moved"
    shutil.copytree(place_value_data, moved)
    config = tiny_training.replace(data_dir=str(moved))
    assert data_fingerprints(training_sources(config)) == {MODULE: fingerprint}
