import math

import keras_tuner
import pytest

from tests.refusals import refused
from tpt_keras.models import PRESETS
from tpt_keras.models import count_weights
from tpt_keras.training.config import TrainingConfig
from tpt_keras.tuning.search_space import SearchSpace
from tpt_keras.tuning.search_space import largest
from tpt_keras.tuning.search_space import largest_filter

TRAINING = TrainingConfig.from_flat(
    modules=["m"], train_steps=200, batch_size=7, seed=3
)
EVERYTHING = SearchSpace(
    variants=("transformer", "tp_transformer_c"),
    num_layers=(1, 2),
    num_heads=(1, 4),
    filter_ratios=(2.5,),
    optimizers=("muon", "adam"),
    schedules=("constant", "cosine"),
    warmup_shares=(0, 0.2),
)


def proposals(space):
    """Random hyperparameters and their configurations."""
    declared = keras_tuner.HyperParameters()
    space.propose(declared, TRAINING)
    oracle = keras_tuner.oracles.RandomSearchOracle(
        keras_tuner.Objective("score", "max"), 40, 1, declared
    )
    for number in range(40):
        values = oracle.populate_space(str(number))["values"]
        hp = declared.copy()
        hp.values = dict(values)
        yield values, *space.propose(hp, TRAINING)
        assert hp.values == values, "all were declared"


@pytest.fixture(scope="module")
def proposed():
    return list(proposals(EVERYTHING))


def test_every_proposal_is_its_preset_at_another_size(proposed):
    for values, model, training in proposed:
        assert 190_000 <= count_weights(model) <= 200_000
        preset = PRESETS[values["variant"]]
        assert model == preset.replace(
            hidden_dim=model.hidden_dim,
            intermediate_dim=model.intermediate_dim,
            num_layers=values["num_layers"],
            num_heads=values["num_heads"],
            dropout=values["dropout"],
        )
        ratio = model.intermediate_dim / model.hidden_dim
        # Wider by less than what one more column for every head would be.
        assert 0 <= ratio - values["filter_ratio"] < 1
        assert training.data.batch_size == 7
        assert training.run.seed == 3


@pytest.mark.slow
def test_sizes_are_equal_to_less_than_a_percent():
    """With each variant's own filter."""
    space = SearchSpace(num_layers=(2,), num_heads=(4,))
    weights = [
        count_weights(space._model(variant, 2, 4, None))
        for variant in space.variants
    ]
    assert min(weights) > 0.99 * max(weights)


def test_only_cosines_have_a_warmup(proposed):
    schedules = set()
    for values, _, training in proposed:
        schedules.add(training.optimizer.schedule)
        assert ("warmup_share" in values) == (
            training.optimizer.schedule == "cosine"
        )
        share = values.get("warmup_share", 0.0)
        assert training.optimizer.warmup_steps == share * 200
    assert schedules == {"constant", "cosine"}


def test_learning_rates_double(proposed):
    seen = set()
    for values, _, training in proposed:
        rate = values["learning_rate"]
        assert rate == pytest.approx(5e-4 * 2 ** round(math.log2(rate / 5e-4)))
        assert 4e-4 <= rate <= 5e-3
        assert training.optimizer.learning_rate == rate
        seen.add(training.optimizer.optimizer)
    assert seen == set(EVERYTHING.optimizers)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"variants": ["tp_transformr"]}, "variant"),
        ({"variants": ["lstm"]}, "variant"),
        ({"optimizers": ["sgd"]}, "optimizers"),
        ({"schedules": ["quadratic"]}, "schedules"),
        ({"num_layers": []}, "num_layers"),
        ({"num_layers": [0]}, "num_layers"),
        ({"dropouts": [1.0]}, "dropouts"),
        ({"learning_rates": [1e-3]}, "learning_rates"),
        ({"learning_rates": [1e-3, 1e-4]}, "learning_rates"),
        ({"min_weights": 300_000}, "max_weights"),
        ({"min_weights": 1, "max_weights": 9}, "max_weights"),
        ({"hparams": "hidden_dim=8"}, "hparams"),
        ({"hparams": "longest=8"}, "hparams"),
    ],
)
def test_invalid_space_is_refused(arguments, field):
    with refused(field):
        SearchSpace(**arguments)


def test_rotary_positions_need_heads_of_even_size():
    space = SearchSpace(
        variants=["tp_transformer_numbers"], num_layers=[1], num_heads=[2]
    )
    model = space._model("tp_transformer_numbers", 1, 2, None)
    assert 190_000 <= count_weights(model) <= 200_000
    assert model.hidden_dim % 4 == 0


@pytest.mark.slow
def test_hparams_and_the_vocabulary_change_a_variant():
    symbols = tuple(map(chr, range(0x4E00, 0x4E00 + 900)))
    space = SearchSpace(
        variants=("transformer",),
        num_layers=(1,),
        num_heads=(4,),
        hparams="max_question_length=500",
        vocabulary=("<pad>", "<start>", "<end>", *symbols),
    )
    for _, model, _ in proposals(space):
        assert model.max_question_length == 500
        assert model.vocabulary == space.vocabulary
        assert 190_000 <= count_weights(model) <= 200_000


def test_flags_are_strings():
    strings = {"num_layers": ["1", "2"], "dropouts": ["0", "0.1"]}
    assert SearchSpace(**strings) == SearchSpace()


@pytest.mark.parametrize(
    "count",
    [
        lambda size: 40 * size**2 + 7 * round(1.3 * size) + 900,
        lambda size: 129 * size + 50,
        lambda size: 3**size,
    ],
)
def test_the_largest_size_within_a_limit(count):
    for limit in (0, 49, 50, 179, 950, 12_345, 30_000):
        sizes = [size for size in range(1, 300) if count(size) <= limit]
        assert largest(count, limit) == max(sizes, default=0)


@pytest.mark.parametrize("variant", ["dual_attention", "tp_transformer_tiny"])
def test_the_largest_filter_within_a_limit(variant):
    config, num_weights = largest_filter(PRESETS[variant], 1_000_000)
    assert num_weights == count_weights(config) <= 1_000_000
    wider = config.replace(intermediate_dim=config.intermediate_dim + 1)
    assert count_weights(wider) > 1_000_000
