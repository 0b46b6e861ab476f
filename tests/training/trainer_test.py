import keras
import numpy as np
import pytest
import tensorflow as tf

from tpt_keras.models import Transformer
from tpt_keras.training.trainer import Trainer

PAD_ID = 0


def random_batch(seed, rows, source_length=7, target_length=5):
    """Token ids of random lengths, padded: tokens and rows differ in number.

    All batches of a size have one shape, so that they share a graph.
    """
    rng = np.random.default_rng(seed)

    def token_ids(length):
        ids = rng.integers(3, 70, (rows, length), dtype="int32")
        lengths = rng.integers(2, length + 1, (rows, 1))
        return np.where(np.arange(length) < lengths, ids, PAD_ID)

    target = token_ids(target_length + 1)
    return (
        {
            "encoder_token_ids": token_ids(source_length),
            "decoder_token_ids": target[:, :-1],
        },
        target[:, 1:],
    )


def num_tokens(token_ids):
    return np.count_nonzero(token_ids != PAD_ID)


def new_transformer(config, dtype="float32"):
    """A transformer that is the same every time."""
    keras.utils.set_random_seed(5)
    return Transformer(config, dtype=dtype)


def new_trainer(
    config,
    optimizer="sgd",
    dtype="float32",
    jit_compile=False,
    run_eagerly=True,
    **kwargs,
):
    """A trainer that runs eagerly, which is quicker where steps are few."""
    trainer = Trainer(new_transformer(config, dtype), **kwargs)
    trainer.compile(
        optimizer=keras.optimizers.get(optimizer),
        jit_compile=jit_compile,
        run_eagerly=run_eagerly,
    )
    return trainer


def step(trainer, batch, sample_weight=None):
    """The results of one step of training."""
    return trainer.train_on_batch(*batch, sample_weight, return_dict=True)


def rows_of(batch, rows):
    """The batch of so many of its rows, given by their numbers."""
    return tf.nest.map_structure(lambda ids: ids[rows], batch)


def token_losses(transformer, batch):
    """numpy's cross-entropies of all tokens that are no padding."""
    inputs, targets = batch
    logits = keras.ops.convert_to_numpy(transformer(inputs)).astype("float64")
    log_shares = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    of_target = np.take_along_axis(log_shares, targets[..., None], -1)
    return -of_target[..., 0][targets != PAD_ID]


def gradients(transformer, batch):
    """The gradient of the mean over the batch's tokens, as it is written."""
    inputs, targets = batch
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            targets, transformer(inputs)
        )
        loss = tf.reduce_mean(losses[targets != PAD_ID])
    variables = [v.value for v in transformer.trainable_variables]
    return [
        tf.convert_to_tensor(gradient).numpy()
        for gradient in tape.gradient(loss, variables)
    ]


def norm_of(arrays):
    return np.sqrt(sum(np.sum(np.square(a.astype("float64"))) for a in arrays))


def assert_same_weights(transformer, expected, tolerance=1e-5):
    """Relative to the largest weight of every tensor.

    Less the biases of the attentions' keys, which softmax takes no notice of:
    their gradients are nothing but rounding.
    """
    for ours, theirs in zip(transformer.weights, expected.weights, strict=True):
        if not ours.path.endswith("key/bias"):
            theirs = theirs.numpy()
            error = np.max(np.abs(ours.numpy() - theirs))
            assert error <= tolerance * np.max(np.abs(theirs)), ours.path


@pytest.mark.slow
@pytest.mark.parametrize("global_clipnorm", [None, 0.1])
def test_a_step_is_one_of_the_mean_over_the_tokens(
    tiny_config, global_clipnorm
):
    """The whole gradient is clipped, and watched before."""
    batch = random_batch(1, rows=6)
    expected = new_transformer(tiny_config)
    losses = token_losses(expected, batch)
    assert len(losses) == num_tokens(batch[1])
    expected_gradients = gradients(expected, batch)
    norm = norm_of(expected_gradients)
    assert 0.2 < norm < 50.0
    factor = min(1.0, (global_clipnorm or np.inf) / norm)
    for variable, gradient in zip(
        expected.trainable_variables, expected_gradients
    ):
        variable.assign_sub(0.5 * factor * gradient)
    trainer = new_trainer(
        tiny_config, keras.optimizers.SGD(0.5), global_clipnorm=global_clipnorm
    )
    results = step(trainer, batch)
    assert results["loss"] == pytest.approx(losses.mean(), rel=1e-5)
    assert results["gradient_norm"] == pytest.approx(norm, rel=1e-5)
    assert_same_weights(trainer.model, expected)


def three_steps(config, micro_batches):
    """A trainer after three steps, and their results."""
    trainer = new_trainer(
        config,
        # Its usual epsilon would make steps of gradients' rounding.
        keras.optimizers.Adam(1e-2, epsilon=1e-5),
        global_clipnorm=0.1,
        gradient_accumulation_steps=micro_batches,
        # Graphs take seconds; one is enough.
        run_eagerly=micro_batches != 3,
    )
    batches = [random_batch(seed, rows=4) for seed in range(3)]
    return trainer, [step(trainer, batch) for batch in batches]


@pytest.fixture(scope="module")
def in_one_go(tiny_config):
    return three_steps(tiny_config, 1)


@pytest.mark.slow
# More micro-batches than rows leave some empty.
@pytest.mark.parametrize("micro_batches", [3, 5])
def test_micro_batches_learn_what_the_batch_does(
    tiny_config, in_one_go, micro_batches
):
    expected_trainer, expected_results = in_one_go
    trainer, results = three_steps(tiny_config, micro_batches)
    for ours, expected in zip(results, expected_results, strict=True):
        assert expected["gradient_norm"] > 0.2
        assert ours == pytest.approx(expected, rel=1e-5)
    assert_same_weights(trainer.model, expected_trainer.model)


def assert_same_means(results, expected):
    for name in MEANS:
        assert results[name] == pytest.approx(expected[name], rel=1e-5), name


MEANS = ("loss", "sequence_accuracy", "token_accuracy")


@pytest.fixture(scope="module")
def after_four_rows(tiny_config):
    """A trainer after a step of four rows, and its results."""
    trainer = new_trainer(tiny_config)
    return trainer, step(trainer, random_batch(0, rows=4))


@pytest.mark.slow
@pytest.mark.parametrize("micro_batches", [1, 3])
def test_rows_of_padding_count_for_nothing(
    tiny_config, after_four_rows, micro_batches
):
    expected, expected_results = after_four_rows
    padded = tf.nest.map_structure(
        lambda ids: np.pad(ids, ((1, 2), (0, 0)), constant_values=PAD_ID),
        random_batch(0, rows=4),
    )
    trainer = new_trainer(
        tiny_config, gradient_accumulation_steps=micro_batches
    )
    results = step(trainer, padded)
    assert results == pytest.approx(expected_results, rel=1e-5)
    assert results["examples"] == 4
    assert_same_weights(trainer.model, expected.model)


@pytest.fixture(scope="module")
def after_repeated_rows(tiny_config):
    """A trainer after a step of repeated rows, its evaluation and results."""
    trainer = new_trainer(tiny_config)
    repeated = rows_of(random_batch(0, rows=4), [0, 0, 1, 3, 3, 3])
    evaluation = trainer.evaluate(*repeated, return_dict=True, verbose=0)
    return trainer, evaluation, step(trainer, repeated)


@pytest.mark.slow
@pytest.mark.parametrize("micro_batches", [1, 3])
def test_a_row_of_weight_two_counts_as_two(
    tiny_config, after_repeated_rows, micro_batches
):
    expected, expected_evaluation, expected_results = after_repeated_rows
    batch = random_batch(0, rows=4)
    weights = np.array([2.0, 1.0, 0.0, 3.0], "float32")
    trainer = new_trainer(
        tiny_config, gradient_accumulation_steps=micro_batches
    )
    assert_same_means(
        trainer.evaluate(
            *batch, sample_weight=weights, return_dict=True, verbose=0
        ),
        expected_evaluation,
    )
    # Their scale does not matter.
    results = step(trainer, batch, 10.0 * weights)
    assert_same_means(results, expected_results)
    assert results["gradient_norm"] == pytest.approx(
        expected_results["gradient_norm"], rel=1e-5
    )
    assert_same_weights(trainer.model, expected.model)


@pytest.mark.slow
def test_a_token_of_weight_zero_is_like_padding(tiny_config):
    inputs, targets = random_batch(0, rows=4)
    weights = np.random.default_rng(1).integers(0, 2, targets.shape)
    trainer, expected = (new_trainer(tiny_config) for _ in range(2))
    masked = inputs, np.where(weights, targets, PAD_ID)
    assert num_tokens(masked[1]) < num_tokens(targets)
    assert_same_means(
        step(trainer, (inputs, targets), weights), step(expected, masked)
    )
    assert_same_weights(trainer.model, expected.model)


@pytest.mark.slow
def test_no_weight_at_all_teaches_nothing(tiny_config):
    trainer = new_trainer(tiny_config)
    before = trainer.model.get_weights()
    results = step(trainer, random_batch(0, rows=4), np.zeros(4))
    assert results["loss"] == results["gradient_norm"] == 0.0
    for weight, value in zip(trainer.model.get_weights(), before):
        np.testing.assert_array_equal(weight, value)


def dataset(batches):
    tokens = tf.TensorSpec((None, None), tf.int32)
    return tf.data.Dataset.from_generator(
        lambda: iter(batches),
        output_signature=(
            {"encoder_token_ids": tokens, "decoder_token_ids": tokens},
            tokens,
        ),
    ).apply(tf.data.experimental.assert_cardinality(len(batches)))


def test_evaluation_is_the_mean_over_all_tokens(tiny_config):
    batches = [
        random_batch(0, rows=2, target_length=2),
        random_batch(1, rows=9, target_length=8),
    ]
    transformer = new_transformer(tiny_config)
    losses = [token_losses(transformer, batch) for batch in batches]
    expected = np.concatenate(losses).mean()
    of_batches = np.mean([batch.mean() for batch in losses])
    assert abs(of_batches - expected) > 0.01
    before = [weight.numpy() for weight in transformer.weights]
    trainer = Trainer(transformer)
    trainer.compile(optimizer="sgd", jit_compile=False)
    results = trainer.evaluate(dataset(batches), return_dict=True, verbose=0)
    assert results["loss"] == pytest.approx(expected, rel=1e-5)
    for weight, value in zip(transformer.weights, before):
        np.testing.assert_array_equal(weight.numpy(), value)


def test_float_ids_are_not_rounded(tiny_config):
    # bfloat16 has no odd number above 256.
    special = tiny_config.vocabulary[:3]
    vocabulary = (*special, *map(chr, range(1000, 1300)))
    trainer = new_trainer(
        tiny_config.replace(vocabulary=vocabulary), dtype="mixed_bfloat16"
    )
    ids = np.array([[1, 259, 297, 2]], "int32")
    batch = {"encoder_token_ids": ids, "decoder_token_ids": ids}, ids
    floats = tf.nest.map_structure(lambda x: x.astype("float32"), batch)
    losses = [
        trainer.evaluate(*each, return_dict=True, verbose=0)["loss"]
        for each in (batch, floats)
    ]
    assert losses[0] == losses[1]


@pytest.mark.slow
def test_an_epoch_sums_examples_and_tokens_and_averages_the_rest(tiny_config):
    batches = [random_batch(seed, rows) for seed, rows in ((0, 3), (1, 6))]
    # Nothing is learned, so that both steps have the same model.
    trainer = new_trainer(tiny_config, keras.optimizers.SGD(0.0))
    history = trainer.fit(dataset(batches), shuffle=False, verbose=0).history
    assert history["examples"] == [9]
    assert history["tokens"] == [
        sum(
            num_tokens(inputs["encoder_token_ids"]) + num_tokens(targets)
            for inputs, targets in batches
        )
    ]
    losses = [token_losses(trainer.model, batch) for batch in batches]
    assert history["loss"] == [
        pytest.approx(np.concatenate(losses).mean(), rel=1e-5)
    ]
    assert history["gradient_norm"] == [
        pytest.approx(
            np.mean([norm_of(gradients(trainer.model, b)) for b in batches]),
            rel=1e-5,
        )
    ]


@pytest.mark.slow
def test_bfloat16_trains(tiny_config):
    trainer = new_trainer(
        tiny_config,
        keras.optimizers.Adam(1e-2),
        "mixed_bfloat16",
        global_clipnorm=0.1,
    )
    batch = random_batch(0, rows=6)
    results = [step(trainer, batch) for _ in range(5)]
    losses = [result["loss"] for result in results]
    assert losses[-1] < losses[0] - 0.3
    expected = new_transformer(tiny_config)
    loss = token_losses(expected, batch).mean()
    assert losses[0] == pytest.approx(loss, rel=0.01)
    norm = norm_of(gradients(expected, batch))
    assert results[0]["gradient_norm"] == pytest.approx(norm, rel=0.02)
    for weight in trainer.model.weights:
        assert weight.dtype == "float32"
        assert np.all(np.isfinite(weight.numpy())), weight.path


@pytest.mark.exhaustive
@pytest.mark.slow
def test_xla_computes_the_same(tiny_config):
    batch = random_batch(0, rows=7)
    ours, expected = (
        step(
            new_trainer(
                tiny_config,
                jit_compile=jit_compile,
                run_eagerly=not jit_compile,
                gradient_accumulation_steps=3,
            ),
            batch,
        )
        for jit_compile in (True, False)
    )
    assert ours == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_keras_own_fit_of_a_transformer_learns_the_same(tiny_config):
    """As whoever takes the model alone trains it."""
    inputs, targets = random_batch(0, rows=6)
    transformer = new_transformer(tiny_config)
    transformer.compile(
        optimizer="adam",
        loss=keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, ignore_class=PAD_ID
        ),
        run_eagerly=True,
    )
    history = transformer.fit(inputs, targets, batch_size=6, verbose=0).history
    trainer = new_trainer(tiny_config, "adam")
    results = step(trainer, (inputs, targets))
    assert history["loss"] == [pytest.approx(results["loss"], rel=1e-5)]
    assert_same_weights(trainer.model, transformer)
