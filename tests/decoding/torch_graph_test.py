import math
import weakref
from unittest import mock

import keras
import numpy as np
import pytest
from keras import ops

from tests.models.transformer_test import QUESTIONS
from tests.models.transformer_test import VOCABULARY
from tests.models.transformer_test import make_model
from tpt_keras import compilation
from tpt_keras.compilation import TorchGraph
from tpt_keras.decoding import Generator
from tpt_keras.models import SequenceToSequence
from tpt_keras.models import Transformer

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        keras.backend.backend() != "torch", reason="graphs of PyTorch"
    ),
]
# Of other numbers and lengths.
BATCHES = (QUESTIONS, QUESTIONS[2:5])


@pytest.fixture
def traced():
    with mock.patch.object(
        compilation, "_torch_graph", side_effect=compilation._torch_graph
    ) as traced:
        yield traced


def seconds_of_eager_calls(seconds):
    return mock.patch.object(compilation, "_EAGER_SECONDS", seconds)


def texts(generator, batch):
    return [answer.text for answer in generator.answer(batch)]


def assert_same_answers(model, graphs, sampler="greedy", batches=BATCHES):
    """Eager answers are those of graphs, which are traced for all batches."""
    with seconds_of_eager_calls(math.inf):
        expected = [graphs.answer(batch) for batch in batches]
        for batch, answers in zip(batches, expected):
            assert Generator(model, sampler).answer(batch) == answers
    for _ in range(2):
        for batch, answers in zip(batches, expected):
            with seconds_of_eager_calls(0.0):
                found = graphs.answer(batch)
            assert [a.text for a in found] == [a.text for a in answers]
            np.testing.assert_allclose(
                [a.log_prob for a in found],
                [a.log_prob for a in answers],
                rtol=1e-5,
                atol=1e-5,
            )


# Of every mechanism, and of some bindings.
@pytest.mark.parametrize(
    "preset",
    [
        "dual_attention",
        "lstm_attention",
        "tp_transformer_discrete",
        "tp_transformer_multi_linear",
        "tp_transformer_numbers",
        "tp_transformer_xl",
    ],
)
@pytest.mark.slow
def test_graphs_answer_as_the_model(preset, traced):
    model = SequenceToSequence.from_preset(
        preset,
        load_weights=False,
        vocabulary=VOCABULARY,
        max_question_length=12,
        max_answer_length=12,
        **(
            {"hidden_dim": 8}
            if preset.startswith("lstm")
            else {"hidden_dim": 8, "num_heads": 2, "num_layers": 1}
        ),
    )
    assert_same_answers(model, Generator(model))
    # The loop of an LSTM over a question has no graph, its step does.
    assert traced.call_count >= 1


@pytest.mark.parametrize(
    ("sampler", "batches"),
    [
        ("beam", BATCHES),
        ("top_k", BATCHES),
        ("greedy", [QUESTIONS[1:2], QUESTIONS[4:5]]),
    ],
)
@pytest.mark.slow
def test_samplers_and_new_weights(sampler, batches, traced):
    model = make_model(digit_places=True, answer_order="units_first")
    graphs = Generator(model, sampler)
    assert_same_answers(model, graphs, sampler, batches)
    count = traced.call_count
    assert count >= 2
    model.set_weights(make_model(1, digit_places=True).get_weights())
    for batch in batches:
        assert texts(graphs, batch) == texts(Generator(model, sampler), batch)
    assert traced.call_count == count
    # Adapters are other variables.
    model.encoder_cells[0].feed_forward.output_dense.enable_lora(2)
    for weight in model.trainable_variables:
        weight.assign(ops.ones_like(weight) / 9)
    for batch in batches:
        assert texts(graphs, batch) == texts(Generator(model, sampler), batch)


@pytest.mark.slow
def test_what_cannot_be_traced_stays_eager(traced):
    class Branching(Transformer):
        def encode(self, encoder_token_ids, training=None):
            sign = 1 if ops.sum(encoder_token_ids) % 2 == 0 else -1
            return sign * super().encode(encoder_token_ids, training)

        def decode_step(self, token_ids, cache, cache_update_index):
            logits, cache = super().decode_step(
                token_ids, cache, cache_update_index
            )
            is_short = cache["encoder_padding_mask"].shape[1] < 6
            return (-logits if is_short else logits), cache

    made = make_model(max_answer_length=3)
    model = Branching(made.config)
    model.set_weights(made.get_weights())
    assert_same_answers(model, Generator(model))
    assert traced.called


def test_changes_in_place_keep_their_order(traced):
    def function(inputs):
        x, row = inputs["x"], inputs["row"]
        first, second = x.clone(), x.clone()
        first[0] = 1.0
        before = second + 1.0
        second[0] = row
        return {"after": (second + 1.0, first, x + 1.0), "before": before}

    graph = TorchGraph(function)
    for length in (3, 2, 4, 5, 6):
        x = ops.reshape(ops.arange(2.0 * length), (length, 2))
        inputs = {"row": x[1], "x": x}
        with seconds_of_eager_calls(0.0 if length > 3 else math.inf):
            found, expected = graph(inputs), function(inputs)
        assert str(found) == str(expected)
    assert traced.call_count == 1
    graph = TorchGraph(lambda x: (ops.zeros_like(x), ops.zeros_like(x)))
    with seconds_of_eager_calls(0.0):
        traced_with = weakref.ref(graph(x)[0])
        # Nothing keeps the outputs.
        assert traced_with() is None
        for _ in range(2):
            one, other = graph(x)
            one += 1.0
            assert not ops.any(other)


def test_sizes_that_matter_have_graphs_of_their_own(traced):
    def function(x):
        return {"sum": ops.sum(x) if x.shape[0] < 4 else -ops.sum(x)}

    graph = TorchGraph(function)
    with seconds_of_eager_calls(0.0):
        for length in (3, 5, 2, 6, 7, 3, 1, 1):
            x = ops.arange(1.0, length + 1.0)
            assert graph(x) == function(x)
    # Up to 3, more, and 1, which PyTorch takes for a constant.
    assert traced.call_count == 3


def test_a_function_of_every_size_has_few_graphs(traced):
    graph = TorchGraph(lambda x: x * ops.convert_to_tensor(list(x.shape)))
    with seconds_of_eager_calls(0.0):
        for length in range(2, 20):
            x = ops.ones((length,))
            assert all(graph(x) == length)
    assert traced.call_count == compilation._MOST_GRAPHS
