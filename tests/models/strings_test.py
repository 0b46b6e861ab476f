"""Questions and answers, strings, in Keras's `fit` and its kin."""

import keras
import numpy as np
import pandas as pd
import pytest

from tests.refusals import refused
from tpt_keras.errors import UsageError
from tpt_keras.models import Transformer

# There, compiling takes longer than a few steps.
ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
QUESTIONS = ["1+1", "2+25", "3*7", "0", "12+12", "5"]
ANSWERS = ["2", "27", "21", "1234567", "24", "5"]
WEIGHTS = [0.0, 0.0, 1.0, 3.0, 0.5, 2.0]
PAIRS = QUESTIONS, ANSWERS
FIRST = QUESTIONS[:3], ANSWERS[:3]
LAST = QUESTIONS[3:], ANSWERS[3:]
# It divides by the number of tokens, the default by their weights.
KERAS_LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def new_model(rate, preset="tp_transformer", length=160, **kwargs):
    keras.utils.set_random_seed(3)
    model = Transformer.from_preset(
        preset,
        num_layers=1,
        hidden_dim=8,
        intermediate_dim=8,
        num_heads=2,
        max_question_length=length,
    )
    model.compile(
        keras.optimizers.SGD(rate), run_eagerly=ON_TENSORFLOW, **kwargs
    )
    return model


@pytest.fixture(scope="module")
def model():
    """A model that learns nothing."""
    return new_model(rate=0.0)


@pytest.fixture(scope="module")
def trained():
    """Weights of a model that answers some of the questions."""
    model = new_model(rate=0.5)
    model.compile(keras.optimizers.Adam(0.05))
    model.fit(QUESTIONS[5:], ANSWERS[5:], epochs=20, verbose=0)
    return model.get_weights()


@pytest.fixture(
    scope="module", params=[("auto", None), (KERAS_LOSS, ["accuracy"])]
)
def metered(request, trained):
    """A loss, and a model that learns nothing with it."""
    loss, metrics = request.param
    model = new_model(rate=0.0, loss=loss, metrics=metrics)
    model.set_weights(trained)
    return loss, model


def tokens_of(model, questions, answers):
    """The losses of the tokens of each answer, and which are right."""
    for question, answer in zip(questions, answers):
        inputs, targets, _ = model.preprocess([question], [answer])
        count = len(answer) + 1
        logits = keras.ops.convert_to_numpy(model(inputs))[0, :count]
        logits = logits.astype("float64")
        targets = targets[0, :count]
        chosen = np.take_along_axis(logits, targets[:, None], 1)[:, 0]
        losses = np.log(np.exp(logits).sum(axis=1)) - chosen
        yield losses, logits.argmax(axis=1) == targets


def metrics_of(model, pairs, weights=None, loss="auto"):
    """The loss and the accuracies of tokens and answers, in float64."""
    losses, right = zip(*tokens_of(model, *pairs))
    weights = np.ones(len(losses)) if weights is None else weights
    of_tokens = np.repeat(weights, [*map(len, losses)])
    total = of_tokens @ np.concatenate(losses)
    divisor = of_tokens.sum() if loss == "auto" else len(of_tokens)
    return {
        "loss": total / divisor,
        # Keras's `metrics` have no weights.
        "accuracy": np.concatenate(right).mean(),
        "token_accuracy": np.average(np.concatenate(right), weights=of_tokens),
        "sequence_accuracy": np.average([*map(all, right)], weights=weights),
    }


def loss_of(model, pairs):
    return metrics_of(model, pairs)["loss"]


def check(found, expected):
    """Compares what Keras returned with the numbers of the same names."""
    for name, value in found.items():
        name = name.removeprefix("val_")
        np.testing.assert_allclose(value, expected[name], 1e-5, err_msg=name)


@pytest.mark.slow_on_jax
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("batch_size", [1, 2, 3, 4, 6])
def test_metrics_are_those_of_all_tokens(metered, batch_size, weights):
    loss, model = metered
    expected = metrics_of(model, PAIRS, weights, loss)
    assert 0 < expected["sequence_accuracy"] < 1
    options = {"batch_size": batch_size, "verbose": 0, "sample_weight": weights}
    found = model.evaluate(*PAIRS, return_dict=True, **options)
    count = 3 if loss == "auto" else 2  # without metrics, two accuracies
    assert len(found) == count
    check(found, expected)
    history = model.fit(
        *PAIRS, validation_data=(*PAIRS, weights), **options
    ).history
    assert len(history) == 2 * count
    check({name: value for name, (value,) in history.items()}, expected)


def test_the_longest_question():
    # Multi-linear attention takes no more tokens than questions have.
    model = new_model(0.0, "tp_transformer_multi_linear", length=20)
    model.fit(["1" * 20], ["1"], verbose=0)


@pytest.mark.slow_on_jax
def test_parts_of_pairs(model):
    fit = {"verbose": 0, "shuffle": False}
    history = model.fit(*PAIRS, validation_split=0.5, **fit).history
    np.testing.assert_allclose(
        [history["loss"], history["val_loss"]],
        [[loss_of(model, FIRST)], [loss_of(model, LAST)]],
        rtol=1e-5,
    )
    history = model.fit(
        np.array(QUESTIONS), ANSWERS, batch_size=3, steps_per_epoch=1, **fit
    ).history
    np.testing.assert_allclose(history["loss"], loss_of(model, FIRST), 1e-5)


@pytest.mark.slow_on_jax
def test_without_a_weight_nothing_is_learned(model):
    history = model.fit(*PAIRS, sample_weight=np.zeros(6), verbose=0).history
    assert history["loss"] == [0.0]


def test_padding_changes_no_gradient():
    pair = QUESTIONS[:1], ANSWERS[:1]
    losses = []
    for stop in (None, -9):
        model = new_model(rate=0.1, loss=KERAS_LOSS)
        inputs, targets, _ = model.preprocess(*pair)
        inputs = {name: ids[:, :stop] for name, ids in inputs.items()}
        model.train_on_batch(inputs, targets[:, :stop], np.ones(1))
        losses.append(loss_of(model, pair))
    np.testing.assert_allclose(*losses, rtol=1e-5)


@pytest.mark.slow_on_jax
def test_arguments_may_have_no_names(model):
    # The batch size, the number of epochs and `verbose`.
    history = model.fit(*PAIRS, 4, 1, 0).history
    expected, *_ = model.evaluate(*PAIRS, 4, 0, [1.0] * 6)
    np.testing.assert_allclose(history["loss"], expected, rtol=1e-5)


def test_what_a_custom_train_step_calls(model):
    inputs, targets, _ = model.preprocess(*PAIRS)
    loss = model.compute_loss(y=targets, y_pred=model(inputs))
    tracker = model.metrics[0]
    tracker.reset_state()
    tracker.update_state(loss)
    expected = loss_of(model, PAIRS)
    np.testing.assert_allclose(float(tracker.result()), expected, rtol=1e-5)


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
    expected = loss_of(model, PAIRS)
    history = model.fit(data(model), shuffle=False, verbose=0).history
    np.testing.assert_allclose(history["loss"], expected, rtol=1e-5)
    stop = keras.callbacks.EarlyStopping("val_sequence_accuracy")
    history = model.fit(
        *FIRST, validation_data=data(model), callbacks=stop, verbose=0
    ).history
    np.testing.assert_allclose(history["val_loss"], expected, rtol=1e-5)


@pytest.mark.slow_on_jax
def test_a_batch_of_strings():
    model = new_model(rate=0.1)
    before = loss_of(model, PAIRS)
    found, *_ = model.train_on_batch(*PAIRS)
    np.testing.assert_allclose(found, before, rtol=1e-5)
    after = loss_of(model, PAIRS)
    found, *_ = model.test_on_batch(*PAIRS)
    np.testing.assert_allclose(found, after, rtol=1e-5)
    assert after < before


def fit_pairs(**kwargs):
    return lambda model: model.fit(*PAIRS, **kwargs)


TABLE = pd.DataFrame({"question": QUESTIONS, "answer": ANSWERS})


@pytest.mark.parametrize(
    ("use", "field"),
    [
        (lambda model: model(QUESTIONS), None),
        (lambda model: model.predict(np.array(QUESTIONS)), None),
        (lambda model: model.predict({"encoder_token_ids": QUESTIONS}), None),
        (lambda model: model.generate(QUESTIONS), None),
        (lambda model: model.fit(QUESTIONS, np.ones((6, 3))), "y"),
        (lambda model: model.fit(QUESTIONS), None),
        (lambda model: model.fit(QUESTIONS, [1, 2, 3, 4, 5, 6]), "y"),
        (lambda model: model.fit(list(zip(*PAIRS))), None),
        (lambda model: model.fit(Batches(PAIRS)), None),
        (fit_pairs(validation_data=Batches(PAIRS)), None),
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
        (fit_pairs(sample_weight=np.ones(3)), "sample_weight"),
        (fit_pairs(sample_weight=[np.nan] * 6), "sample_weight"),
        (fit_pairs(class_weight={0: 2.0}), "class_weight"),
    ],
)
def test_what_is_refused(model, use, field):
    with refused(field):
        use(model)


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
