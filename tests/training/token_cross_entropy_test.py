import keras
import numpy as np
import pytest

from tpt_keras.training.token_cross_entropy import TokenCrossEntropy

TARGETS = np.array([[3, 4, 2, 0, 0, 0], [5, 5, 5, 5, 5, 2], [2, 0, 0, 0, 0, 0]])
LOGITS = np.random.default_rng(0).normal(size=(3, 6, 7)).astype("float32") * 3


def token_losses(logits):
    """Minus the log of each target's probability, in double precision."""
    logits = logits.astype("float64")
    log_total = np.log(np.exp(logits).sum(axis=-1))
    return (
        log_total - np.take_along_axis(logits, TARGETS[..., None], -1)[..., 0]
    )


def test_is_the_mean_over_the_tokens_of_the_batch():
    losses, is_token = token_losses(LOGITS), TARGETS != 0
    expected = losses[is_token].mean()
    # A mean of the rows' means would be something else.
    rows = [row[mask].mean() for row, mask in zip(losses, is_token)]
    assert abs(np.mean(rows) - expected) > 0.1
    loss = TokenCrossEntropy(pad_id=0)(TARGETS, LOGITS)
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_the_sum_over_the_tokens_of_the_batch():
    loss = TokenCrossEntropy(pad_id=0, reduction="sum")(TARGETS, LOGITS)
    expected = token_losses(LOGITS)[TARGETS != 0].sum()
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_padding_counts_for_nothing():
    loss = TokenCrossEntropy(pad_id=0)
    changed = np.where((TARGETS == 0)[..., None], 100.0 - LOGITS, LOGITS)
    assert float(loss(TARGETS, changed)) == pytest.approx(
        float(loss(TARGETS, LOGITS))
    )
    longer = np.pad(TARGETS, ((0, 0), (0, 4)))
    logits = np.pad(LOGITS, ((0, 0), (0, 4), (0, 0)), constant_values=1.0)
    assert float(loss(longer, logits)) == pytest.approx(
        float(loss(TARGETS, LOGITS))
    )


def test_another_padding_symbol():
    # The same problem with the names of symbols 0 and 5 exchanged.
    names = np.array([5, 1, 2, 3, 4, 0, 6])
    loss = TokenCrossEntropy(pad_id=5)(names[TARGETS], LOGITS[..., names])
    expected = TokenCrossEntropy(pad_id=0)(TARGETS, LOGITS)
    assert float(loss) == pytest.approx(float(expected))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_is_the_same_when_a_model_is_trained(jit_compile):
    inputs = keras.Input((6, 7))
    model = keras.Model(inputs, keras.layers.Identity()(inputs))
    model.compile(
        optimizer="sgd",
        loss=TokenCrossEntropy(pad_id=0),
        jit_compile=jit_compile,
    )
    expected = token_losses(LOGITS)[TARGETS != 0].mean()
    assert model.test_on_batch(LOGITS, TARGETS) == pytest.approx(
        expected, rel=1e-5
    )


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "sum"])
def test_serialization(reduction):
    loss = TokenCrossEntropy(pad_id=5, reduction=reduction, name="unusual")
    serialized = keras.saving.serialize_keras_object(loss)
    assert serialized["registered_name"] == "tpt_keras>TokenCrossEntropy"
    revived = keras.saving.deserialize_keras_object(serialized)
    assert type(revived) is TokenCrossEntropy
    assert revived.get_config() == {
        "pad_id": 5,
        "reduction": reduction,
        "name": "unusual",
    }
    assert float(revived(TARGETS, LOGITS)) == float(loss(TARGETS, LOGITS))
