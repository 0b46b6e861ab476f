import importlib
import sys

import numpy as np
import pytest
from absl import flags

from experiments.benchmarks._timing import interleaved_medians
from tpt_keras.models import PRESETS
from tpt_keras.models import Transformer


@pytest.fixture(scope="module")
def train_step():
    """The benchmark's module; its flags go when the tests are over."""
    name = "experiments.benchmarks.train_step"
    yield importlib.import_module(name)
    for flag in list(flags.FLAGS.get_flags_for_module(name)):
        delattr(flags.FLAGS, flag.name)
    del sys.modules[name]


def make_batch(batch_size, source, target):
    ids = np.ones((batch_size, source), "int32")
    targets = np.ones((batch_size, target), "int32")
    return {"encoder_token_ids": ids, "decoder_token_ids": targets}, targets


def count_multiplications(preset, batch):
    """Multiplications in the matrix products of a model's forward pass."""
    import tensorflow as tf

    model = Transformer.from_preset(preset)
    inputs, _ = batch
    function = tf.function(model).get_concrete_function(
        {name: tf.TensorSpec(x.shape, x.dtype) for name, x in inputs.items()}
    )
    return sum(
        multiplications(operation)
        for operation in function.graph.get_operations()
        if operation.type in ("MatMul", "BatchMatMulV2", "Einsum")
    )


def multiplications(operation):
    """Of one matrix product: every index of operands and result, once."""
    shapes = [tensor.shape.as_list() for tensor in operation.inputs]
    if operation.type == "Einsum":
        equation = operation.get_attr("equation").decode()
        operands = equation.partition("->")[0].split(",")
        sizes = {}
        for letters, shape in zip(operands, shapes):
            sizes.update(zip(letters, shape, strict=True))
        return int(np.prod(list(sizes.values())))
    transposed = "transpose_a" if operation.type == "MatMul" else "adj_x"
    inner = shapes[0][-2 if operation.get_attr(transposed) else -1]
    return int(np.prod(operation.outputs[0].shape.as_list())) * inner


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "preset", ["tp_transformer_tiny", "tp_transformer_c", "transformer"]
)
def test_step_flops_equals_a_count_in_the_graph(
    train_step, preset, monkeypatch
):
    # All sizes differ, as in the preset, but none is large.
    config = PRESETS[preset].replace(
        hidden_dim=24, intermediate_dim=40, num_heads=4, num_layers=2
    )
    monkeypatch.setitem(PRESETS, preset, config)
    batch = make_batch(3, source=11, target=5)
    # The backward pass counts twice the forward, a multiplication with its
    # addition twice.
    assert train_step.step_flops(preset, batch) == pytest.approx(
        3 * 2 * count_multiplications(preset, batch), rel=1e-6
    )


def test_step_flops_of_keras_hub_is_the_baselines(train_step):
    batch = make_batch(2, source=7, target=3)
    assert train_step.step_flops("keras_hub", batch) == train_step.step_flops(
        "transformer", batch
    )


def test_step_flops_grow_with_the_batch(train_step):
    one, three = (
        train_step.step_flops("tp_transformer", make_batch(n, 9, 4))
        for n in (1, 3)
    )
    assert three == 3 * one


# The generator passes whole numbers as floats to Python's random.
@pytest.mark.filterwarnings("ignore:non-integer arguments:DeprecationWarning")
@pytest.mark.slow
@pytest.mark.exhaustive
def test_real_batch(train_step):
    inputs, targets = train_step.real_batch(16)
    questions = inputs["encoder_token_ids"]
    assert len(questions) == len(targets) == 16
    assert inputs["decoder_token_ids"].shape == targets.shape
    # Questions that the models take, of middling and similar lengths.
    lengths = (questions != 0).sum(axis=1)
    assert lengths.max() == questions.shape[1] <= 162
    assert lengths.max() <= 1.5 * lengths.min()
    assert (questions[:, 0] == 1).all()
    # The decoder's input is the target, one symbol behind.
    np.testing.assert_array_equal(
        inputs["decoder_token_ids"][:, 1:], targets[:, :-1]
    )
    assert (inputs["decoder_token_ids"][:, 0] == 1).all()
    assert ((targets == 2).sum(axis=1) == 1).all()


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("xla", [False, True])
def test_preset_trainer(train_step, xla, tiny_config, monkeypatch):
    monkeypatch.setitem(PRESETS, "tp_transformer_tiny", tiny_config)
    trainer = train_step.preset_trainer("tp_transformer_tiny", xla)
    assert trainer.transformer.config.binding == "hadamard"
    batch = make_batch(3, source=11, target=5)
    first, second = (trainer.train_on_batch(*batch)[0] for _ in range(2))
    assert second < first


def test_interleaved_medians(monkeypatch):
    clock = [0.0]
    calls = []
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])

    def work(name, seconds):
        def function():
            calls.append(name)
            clock[0] += seconds[calls.count(name) - 1]

        return function

    medians = interleaved_medians(
        {
            "slow start": work("slow start", [90.0, 1.0, 2.0, 50.0]),
            "steady": work("steady", [3.0] * 4),
        },
        repeats=3,
        warmup=1,
    )
    assert medians == {"slow start": 2.0, "steady": 3.0}
    # In turn, so that a slow minute falls on all.
    assert calls == ["slow start", "steady"] * 4
    calls.clear()
    medians = interleaved_medians(
        {"second is faster": work("second is faster", [9.0, 1.0])},
        repeats=1,
        warmup=0,
        untimed=1,
    )
    assert medians == {"second is faster": 1.0}
