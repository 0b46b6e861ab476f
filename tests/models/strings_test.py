"""Questions and answers, strings, in Keras's `fit` and its kin."""

import keras
import numpy as np
import pandas as pd
import pytest

from tpt_keras.errors import UsageError
from tpt_keras.models import Transformer

# There, compiling takes longer than a few steps.
ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
QUESTIONS = ["1+1", "2+25", "3*7", "0"]
ANSWERS = ["2", "27", "21", "1234567"]
PAIRS = QUESTIONS, ANSWERS
FIRST = QUESTIONS[:2], ANSWERS[:2]
LAST = QUESTIONS[2:], ANSWERS[2:]


def new_model(rate):
    keras.utils.set_random_seed(3)
    model = Transformer.from_preset(
        "tp_transformer",
        num_layers=1,
        hidden_dim=8,
        intermediate_dim=8,
        num_heads=2,
    )
    model.compile(keras.optimizers.SGD(rate), run_eagerly=ON_TENSORFLOW)
    return model


@pytest.fixture(scope="module")
def model():
    """A model that learns nothing."""
    return new_model(rate=0.0)


def token_losses(model, questions, answers):
    """The losses of the tokens of each answer, without padding."""
    inputs, targets, weights = model.preprocess(questions, answers)
    losses = keras.losses.sparse_categorical_crossentropy(
        targets, model(inputs), from_logits=True
    )
    losses = keras.ops.convert_to_numpy(losses)
    return [row[weight > 0] for row, weight in zip(losses, weights)]


def loss_of(model, pairs):
    return np.mean(np.concatenate(token_losses(model, *pairs)))


@pytest.mark.slow_on_jax
def test_a_loss_is_the_mean_over_real_tokens(model):
    first, last = loss_of(model, FIRST), loss_of(model, LAST)
    fit = {"verbose": 0, "shuffle": False}
    history = model.fit(*PAIRS, validation_split=0.5, **fit).history
    np.testing.assert_allclose(history["loss"], first, rtol=1e-5)
    np.testing.assert_allclose(history["val_loss"], last, rtol=1e-5)
    history = model.fit(
        np.array(QUESTIONS), ANSWERS, batch_size=2, steps_per_epoch=1, **fit
    ).history
    np.testing.assert_allclose(history["loss"], first, rtol=1e-5)
    for pairs, expected in ((FIRST, first), (LAST, last)):
        found = model.evaluate(*pairs, verbose=0)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.slow_on_jax
def test_a_question_has_its_weight(model):
    weights = np.array([300.0, 50.0, 0.0, 100.0])
    losses = token_losses(model, *PAIRS)
    expected = np.average(
        np.concatenate(losses), weights=np.repeat(weights, [*map(len, losses)])
    )
    found = model.evaluate(*PAIRS, sample_weight=weights, verbose=0)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    validation = [*PAIRS, weights[:, None]]
    history = model.fit(
        *PAIRS,
        sample_weight=np.zeros(4),
        validation_data=validation,
        verbose=0,
    ).history
    # Without a weight nothing is learned.
    assert history["loss"] == [0.0]
    np.testing.assert_allclose(history["val_loss"], expected, rtol=1e-5)


@pytest.mark.slow_on_jax
def test_arguments_may_have_no_names(model):
    # The batch size, the number of epochs and `verbose`.
    history = model.fit(*PAIRS, 4, 1, 0).history
    expected = model.evaluate(*PAIRS, 4, 0, [1.0, 1.0, 1.0, 1.0])
    np.testing.assert_allclose(history["loss"], expected, rtol=1e-5)


class Batches(keras.utils.PyDataset):
    def __init__(self, *batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


# Keras warns that a generator ends.
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.slow_on_jax
@pytest.mark.parametrize(
    "data",
    [
        lambda _: ((pd.Series(q), np.array(a)) for q, a in (FIRST, LAST)),
        lambda model: (model.preprocess(*pairs) for pairs in (FIRST, LAST)),
        lambda model: Batches(*(model.preprocess(*p) for p in (FIRST, LAST))),
    ],
)
def test_batches_of_strings(model, data):
    expected = (loss_of(model, FIRST) + loss_of(model, LAST)) / 2
    history = model.fit(data(model), shuffle=False, verbose=0).history
    np.testing.assert_allclose(history["loss"], expected, rtol=1e-5)
    history = model.fit(*FIRST, validation_data=data(model), verbose=0).history
    np.testing.assert_allclose(history["val_loss"], expected, rtol=1e-5)


@pytest.mark.slow_on_jax
def test_a_batch_of_strings():
    model = new_model(rate=0.1)
    before = loss_of(model, PAIRS)
    found = model.train_on_batch(*PAIRS)
    np.testing.assert_allclose(found, before, rtol=1e-5)
    after = loss_of(model, PAIRS)
    np.testing.assert_allclose(model.test_on_batch(*PAIRS), after, rtol=1e-5)
    assert after < before


TABLE = pd.DataFrame({"question": QUESTIONS, "answer": ANSWERS})


@pytest.mark.parametrize(
    ("use", "field"),
    [
        (lambda model: model(QUESTIONS), None),
        (lambda model: model.predict(np.array(QUESTIONS)), None),
        (lambda model: model.predict({"encoder_token_ids": QUESTIONS}), None),
        (lambda model: model.generate(QUESTIONS), None),
        (lambda model: model.fit(QUESTIONS, np.ones((4, 3))), "y"),
        (lambda model: model.fit(QUESTIONS), None),
        (lambda model: model.fit(QUESTIONS, [1, 2, 3, 4]), "y"),
        (lambda model: model.fit(list(zip(*PAIRS))), None),
        (lambda model: model.fit(Batches(PAIRS)), None),
        (lambda model: model.fit(*PAIRS, validation_data=Batches(PAIRS)), None),
        (lambda model: model.fit(["%"], ["1"]), None),
        (lambda model: model.fit("12", "34"), "x"),
        (lambda model: model.fit(TABLE[["question"]], TABLE["answer"]), "x"),
        (lambda model: model.fit(TABLE["question"], TABLE[["answer"]]), "y"),
        (
            lambda model: model.fit(
                (pair for pair in zip(*PAIRS)), shuffle=False
            ),
            "x",
        ),
        (lambda model: model.fit([], []), "y"),
        (lambda model: model.fit(QUESTIONS, ["2", float("nan")]), "y"),
        (lambda model: model.fit(QUESTIONS, ANSWERS[:3]), "y"),
        (lambda model: model.train_on_batch(QUESTIONS, ANSWERS[:3]), "y"),
        (
            lambda model: model.fit(QUESTIONS[:1], ["1" * 99]),
            "max_answer_length",
        ),
        (
            lambda model: model.fit(*PAIRS, sample_weight=np.ones(3)),
            "sample_weight",
        ),
        (
            lambda model: model.fit(*PAIRS, sample_weight=[np.nan] * 4),
            "sample_weight",
        ),
    ],
)
def test_what_is_refused(model, use, field):
    with pytest.raises(UsageError) as error:
        use(model)
    assert error.value.field == field


@pytest.mark.skipif(not ON_TENSORFLOW, reason="needs a dataset")
def test_a_dataset_of_strings_is_refused(model):
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices(PAIRS).batch(1)
    with pytest.raises(UsageError):
        model.fit(dataset)
    with pytest.raises(UsageError):
        model(tf.constant(QUESTIONS))
    # As the error says.
    model.fit(*zip(*dataset.unbatch().as_numpy_iterator()), verbose=0)
