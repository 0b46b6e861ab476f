import itertools
import signal
import threading
import types

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from tests.data_generators.files import all_texts
from tests.data_generators.files import examples_of
from tests.data_generators.files import numbered_examples
from tests.refusals import refused
from tpt_keras.data_generators import batches as batches_module
from tpt_keras.data_generators.batches import ProblemBatches
from tpt_keras.data_generators.batches import prefetch
from tpt_keras.data_generators.buckets import MAX_PADDING
from tpt_keras.data_generators.buckets import MAX_PAIRS
from tpt_keras.data_generators.buckets import Buckets
from tpt_keras.data_generators.buckets import choose_length_pairs
from tpt_keras.data_generators.buckets import fitting_pair
from tpt_keras.data_generators.buckets import similar_length_batches
from tpt_keras.data_generators.examples import ExampleMixture
from tpt_keras.data_generators.examples import permute
from tpt_keras.errors import UsageError
from tpt_keras.tokenizers.character_tokenizer import ANSWER_ORDERS
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer

TOKENIZER = CharacterTokenizer()


@pytest.fixture
def small_windows(monkeypatch):
    """Several windows an epoch, of few problems."""
    monkeypatch.setattr(batches_module, "WINDOW_BATCHES", 3)


def decode(batch, tokenizer=TOKENIZER):
    """The problems of a batch, read from its token ids."""
    inputs, targets = batch
    sources, decoder = inputs["encoder_token_ids"], inputs["decoder_token_ids"]
    assert len(sources) == len(decoder) == len(targets)
    assert sources.dtype == decoder.dtype == targets.dtype == np.int32
    # The decoder reads what it is to say, a step behind.
    assert np.all(decoder[:, :1] == tokenizer.start_id)
    is_text = targets[:, 1:] != tokenizer.pad_id
    np.testing.assert_array_equal(
        decoder[:, 1:][is_text], targets[:, :-1][is_text]
    )
    return [
        (tokenizer.decode(source), tokenizer.decode(target))
        for source, target in zip(sources, targets)
    ]


def epochs(batches, count):
    """The decoded batches of each epoch."""
    steps = batches.steps_per_epoch
    decoded = [decode(batch) for batch in batches.iterate(num_epochs=count)]
    assert len(decoded) == steps * count
    return [decoded[i * steps : (i + 1) * steps] for i in range(count)]


def assert_batches_equal(batch, other):
    (inputs, targets), (other_inputs, other_targets) = batch, other
    assert inputs.keys() == other_inputs.keys()
    for name in inputs:
        np.testing.assert_array_equal(inputs[name], other_inputs[name])
    np.testing.assert_array_equal(targets, other_targets)


@settings(max_examples=20)
@given(st.integers(1, 90), st.integers(1, 20), st.integers(0, 2**32))
def test_every_epoch_visits_every_problem_once(count, batch_size, seed):
    source = numbered_examples(count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches_module, "WINDOW_BATCHES", 3)
        batches = ProblemBatches(source, TOKENIZER, batch_size, seed)
        assert len(batches) == count
        first, second = epochs(batches, 2)
    for epoch in (first, second):
        problems = [problem for batch in epoch for problem in batch]
        assert sorted(problems) == sorted(all_texts(source))
        sizes = sorted(map(len, epoch))
        assert sizes[1:] == [batch_size] * (len(epoch) - 1)
        assert sizes[0] == count - batch_size * (len(epoch) - 1)


@pytest.mark.usefixtures("small_windows")
def test_epochs_and_seeds_differ():
    source = numbered_examples(300)
    first, second = epochs(ProblemBatches(source, TOKENIZER, 8, seed=1), 2)
    (again,) = epochs(ProblemBatches(source, TOKENIZER, 8, seed=1), 1)
    (other,) = epochs(ProblemBatches(source, TOKENIZER, 8, seed=2), 1)
    assert again == first
    for epoch in (second, other):
        assert epoch != first
        # Other batches, too, and not only another order of the same.
        same = {tuple(sorted(b)) for b in epoch} & {
            tuple(sorted(b)) for b in first
        }
        assert not same


@settings(max_examples=20)
@given(st.integers(0, 60), st.integers(1, 60), st.integers(1, 9))
def test_late_start_equals_skipping(start_step, count, batch_size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches_module, "WINDOW_BATCHES", 3)
        batches = ProblemBatches(
            numbered_examples(count), TOKENIZER, batch_size, seed=4
        )
        skipped = itertools.islice(
            batches.iterate(), start_step, start_step + 8
        )
        started = itertools.islice(batches.iterate(start_step), 8)
        pairs = list(zip(started, skipped, strict=True))
    assert len(pairs) == 8
    for batch, other in pairs:
        assert_batches_equal(batch, other)


class Recorder(ExampleMixture):
    """Examples that record the numbers of those that are read."""

    def __init__(self, examples):
        super().__init__([examples])
        self.counts = []

    def read(self, indices):
        self.counts.append(len(indices))
        return super().read(indices)


def test_late_start_reads_one_window(monkeypatch):
    monkeypatch.setattr(batches_module, "WINDOW_BATCHES", 64)
    source = Recorder(numbered_examples(1000))
    batches = ProblemBatches(source, TOKENIZER, 10)
    next(batches.iterate(start_step=100 * 10**6 + 70))
    # The second window of an epoch of 100 batches.
    assert source.counts == [(100 - 64) * 10]


@pytest.mark.usefixtures("small_windows")
def test_epochs_end():
    batches = ProblemBatches(numbered_examples(50), TOKENIZER, 8)
    assert batches.steps_per_epoch == 7
    assert len(list(batches.iterate(num_epochs=2))) == 14
    assert len(list(batches.iterate(start_step=5, num_epochs=2))) == 9
    assert list(batches.iterate(start_step=14, num_epochs=2)) == []


@pytest.mark.parametrize("workers", [1, 2, 3, 20])
@pytest.mark.usefixtures("small_windows")
def test_workers_share_every_batch(workers):
    # The last batch has fewer rows than there are workers.
    batches = ProblemBatches(numbered_examples(50), TOKENIZER, 8, seed=3)
    whole = list(batches.iterate(num_epochs=1))
    parts = [
        list(
            batches.iterate(
                num_epochs=1, shards=range(index, index + 1), num_shards=workers
            )
        )
        for index in range(workers)
    ]
    assert {len(part) for part in parts} == {len(whole)}
    for step, batch in enumerate(whole):
        rows = [problem for part in parts for problem in decode(part[step])]
        assert len(rows) == len(set(rows))
        assert sorted(rows) == sorted(decode(batch))
        sizes = [len(part[step][1]) for part in parts]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("start_step", [0, 4])
@pytest.mark.usefixtures("small_windows")
def test_worker_of_several_replicas_takes_their_parts_in_turn(start_step):
    batches = ProblemBatches(numbered_examples(50), TOKENIZER, 8, seed=3)
    alone = [
        list(batches.iterate(start_step, 1, range(index, index + 1), 5))
        for index in range(5)
    ]
    steps = batches.steps_per_epoch - start_step
    for shards in (range(2), range(2, 5)):
        together = list(batches.iterate(start_step, 1, shards, 5))
        expected = [
            alone[index][step] for step in range(steps) for index in shards
        ]
        for batch, other in zip(together, expected, strict=True):
            assert_batches_equal(batch, other)
        dataset = batches.dataset(start_step, 1, shards, 5)
        assert dataset.cardinality() == steps * len(shards)
        for batch, other in zip(
            dataset.as_numpy_iterator(), expected, strict=True
        ):
            assert_batches_equal(batch, other)


VOCABULARIES = {
    "of the examples": TOKENIZER.vocabulary,
    "reversed": TOKENIZER.vocabulary[::-1],
    "with more symbols": ("<unknown>", "é", *TOKENIZER.vocabulary),
    "with words": (*TOKENIZER.vocabulary, "What", "is", "True"),
}


@pytest.mark.parametrize("vocabulary", VOCABULARIES.values(), ids=VOCABULARIES)
@pytest.mark.parametrize("answer_order", ANSWER_ORDERS)
def test_encoding_is_that_of_the_models_tokenizer(vocabulary, answer_order):
    tokenizer = CharacterTokenizer(vocabulary, answer_order)
    problems = [("What is 2 - 3?", "-1"), ("?", "True12"), ("is 1 {}", "34.56")]
    batches = ProblemBatches(examples_of(problems), tokenizer, 3)
    ((inputs, targets),) = batches.iterate(num_epochs=1)
    batch = decode((inputs, targets), tokenizer)
    assert sorted(batch) == sorted(problems)
    questions, answers = map(list, zip(*batch))
    np.testing.assert_array_equal(
        inputs["encoder_token_ids"], tokenizer.encode_questions(questions)
    )
    whole = tokenizer.encode_batch(answers)
    np.testing.assert_array_equal(inputs["decoder_token_ids"], whole[:, :-1])
    np.testing.assert_array_equal(targets, whole[:, 1:])


def test_words_shorten_batches_but_not_the_limits():
    tokenizer = CharacterTokenizer(VOCABULARIES["with words"])
    source = examples_of(("What" + " What" * (n % 5), "1") for n in range(90))
    limits = {"max_question_length": 24}
    batches = ProblemBatches(source, tokenizer, 8, limits=limits)
    # Nine tokens, a start and an end.
    assert batches.length_pairs[:, 0].max() == 16
    read = list(batches.iterate(num_epochs=1))
    assert max(inputs["encoder_token_ids"].shape[1] for inputs, _ in read) == 11
    problems = [each for batch in read for each in decode(batch, tokenizer)]
    assert sorted(problems) == sorted(all_texts(source))
    limits = {"max_question_length": 23}
    with pytest.raises(UsageError):
        next(ProblemBatches(source, tokenizer, 8, limits=limits).iterate())


def test_character_unknown_to_the_model_is_refused():
    tokenizer = CharacterTokenizer(("<pad>", "<start>", "<end>", "1", "2"))
    source = examples_of([("1", "1"), ("1z", "1"), ("2", "2")])
    with refused(part="'z'"):
        list(ProblemBatches(source, tokenizer, 3).iterate(num_epochs=1))


@pytest.mark.parametrize(
    ("problem", "field"),
    [
        (("1" * 11, "1"), "max_question_length"),
        (("1", "1" * 4), "max_answer_length"),
    ],
)
def test_example_too_long_for_the_model_is_refused(problem, field):
    limits = {"max_question_length": 10, "max_answer_length": 3}
    source = examples_of([("1" * 10, "1" * 3), problem])
    batches = ProblemBatches(source, TOKENIZER, 2, limits=limits)
    for read in (lambda: batches.length_pairs, lambda: next(batches.iterate())):
        with refused(field):
            read()


def test_no_examples_are_refused():
    with pytest.raises(UsageError):
        ProblemBatches(examples_of([]), TOKENIZER, 8)


def padding(lengths, batches, pairs=None):
    tokens = 0
    for rows in batches:
        longest = lengths[rows].max(axis=0)
        if pairs is not None:
            longest = pairs[fitting_pair(longest[None], pairs)][0]
        tokens += len(rows) * longest
    return 1 - lengths.sum(axis=0) / tokens


def least_padding(lengths, pairs):
    """The padding of every problem to its own pair."""
    tokens = pairs[fitting_pair(lengths, pairs)].sum(axis=0)
    return 1 - lengths.sum(axis=0) / tokens


def test_batches_of_similar_lengths_pad_less():
    batch_size = 16
    rng = np.random.default_rng(0)
    count = batches_module.WINDOW_BATCHES * batch_size
    sources = rng.integers(12, 163, count)
    targets = 2 + rng.geometric(0.3, count).clip(0, 29)
    lengths = np.stack([sources, targets], axis=-1)
    pairs = choose_length_pairs(lengths)
    random_batches = rng.permutation(count).reshape(-1, batch_size)
    batches = similar_length_batches(lengths, pairs, batch_size, rng)
    assert np.all(padding(lengths, random_batches) > (0.4, 0.5))
    assert np.all(padding(lengths, batches) < (0.15, 0.25))
    # Padded to the few pairs, too, nearly as little as each problem by itself.
    least = least_padding(lengths, pairs)
    assert np.all(padding(lengths, batches, pairs) < least + 0.05)


def test_buckets_of_long_examples_need_little_memory():
    """Of as many lengths of each kind as there are examples."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, (6000, 4000), (3000, 2))
    pairs = choose_length_pairs(lengths)
    assert 2 <= len(pairs) <= MAX_PAIRS
    assert np.all(pairs[-1] >= lengths.max(axis=0))
    assert np.all(least_padding(lengths, pairs) < 0.45)


def test_batches_mix_modules():
    """Although each module has problems of its own lengths."""
    rng = np.random.default_rng(0)
    parts = [
        examples_of(
            (name + "x" * length + str(index), "1" * (1 + index % 5))
            for index, length in enumerate(rng.integers(low, low + 60, 600))
        )
        for name, low in (("a", 10), ("b", 30), ("c", 50))
    ]
    batches = ProblemBatches(ExampleMixture(parts), TOKENIZER, 32)
    (epoch,) = epochs(batches, 1)
    modules = [len({question[:1] for question, _ in batch}) for batch in epoch]
    assert np.mean(np.array(modules) >= 2) > 0.8
    # Modules do not take turns: every half of the epoch has all.
    half = [q for batch in epoch[: len(epoch) // 2] for q, _ in batch]
    for name in "abc":
        assert sum(q.startswith(name) for q in half) > 150


def test_dataset_equals_iterate():
    batches = ProblemBatches(numbered_examples(20), TOKENIZER, 8)
    assert batches.dataset(start_step=1, num_epochs=2).cardinality() == 5
    dataset = batches.dataset(start_step=1)
    taken = list(dataset.take(7).as_numpy_iterator())
    expected = itertools.islice(batches.iterate(start_step=1), 7)
    for batch, other in zip(taken, expected, strict=True):
        assert_batches_equal(batch, other)
    assert batches.dataset(start_step=9, num_epochs=1).cardinality() == 0


def test_own_error_is_raised_in_place_of_tensorflows():
    class Damaged(ExampleMixture):
        def read(self, indices):
            raise UsageError("damaged", path="a")

    batches = ProblemBatches(Damaged([numbered_examples(9)]), TOKENIZER, 2)
    with refused(path="a"), batches.opened():
        list(batches.dataset(num_epochs=1))
    # Other errors stay what they are.
    with pytest.raises(tf.errors.DataLossError), batches.opened():
        raise tf.errors.DataLossError(None, None, "something else")


def test_window_is_read_once(monkeypatch):
    monkeypatch.setattr(batches_module, "WINDOW_BATCHES", 4)
    source = Recorder(numbered_examples(80))
    batches = ProblemBatches(source, TOKENIZER, 5)
    for elements in (
        batches.iterate(num_epochs=1, shards=range(2), num_shards=2),
        batches.dataset(num_epochs=1),
    ):
        assert len(list(elements)) in (16, 32)
        assert source.counts == [20] * 4
        source.counts.clear()


def test_buckets_fit_the_sampled_examples(monkeypatch):
    monkeypatch.setattr(batches_module, "SAMPLED_EXAMPLES", 3)
    source = numbered_examples(17)
    batches = ProblemBatches(source, TOKENIZER, 4)
    order = permute(np.arange(3), 17, (0, 0))
    longest = source.lengths(order).max(axis=0) + np.array([2, 1])
    excess = batches.length_pairs[-1] - longest
    assert np.all((excess >= 0) & (excess < (8, 4)))


@pytest.mark.parametrize("seed", range(3))
def test_few_buckets_pad_little(seed):
    rng = np.random.default_rng(seed)
    sources = rng.integers(30, 100, 5000)
    targets = rng.choice([3, 8, 9, 20], 5000)
    lengths = np.stack([sources, targets], axis=-1)
    pairs = choose_length_pairs(lengths)
    assert len(pairs) <= MAX_PAIRS
    assert np.all(least_padding(lengths, pairs) <= MAX_PADDING)
    # As many of equal steps leave more padding.
    sources = np.linspace(30, 100, MAX_PAIRS + 1, dtype=int)[1:]
    even = np.stack([sources, np.full(MAX_PAIRS, 20)], axis=-1)
    assert np.any(least_padding(lengths, even) > MAX_PADDING)


def test_longest_bucket_is_rounded_up():
    pairs = choose_length_pairs(np.array([[20, 3], [41, 9]]))
    assert pairs.tolist() == [[20, 3], [48, 12]]


@pytest.mark.parametrize(("short", "count"), [(44, 1), (20, 2), (3, 2)])
def test_no_more_buckets_than_needed(short, count):
    lengths = np.array([[48, 4], [short, 4], [short - 1, 4]])
    assert len(choose_length_pairs(lengths)) == count


LENGTHS = st.tuples(st.integers(2, 162), st.integers(1, 31))


@settings(max_examples=20)
@given(st.lists(LENGTHS, min_size=1, max_size=50))
def test_every_problem_fits_its_bucket(lengths):
    lengths = np.array(lengths)
    pairs = choose_length_pairs(lengths)
    assert 1 <= len(pairs) <= MAX_PAIRS
    places = fitting_pair(lengths, pairs)
    assert np.all(lengths <= pairs[places])
    for place, pair in enumerate(pairs):
        # None would fit a smaller one.
        fits = (lengths[places > place] <= pair).all(axis=1)
        assert not fits.any()


def test_batch_gets_the_smallest_pair_that_it_fits():
    limits = {"max_question_length": 160, "max_answer_length": 30}
    model = types.SimpleNamespace(
        config=types.SimpleNamespace(**limits),
        tokenizer=types.SimpleNamespace(pad_id=7),
    )
    buckets = Buckets(model, np.array([[20, 3], [44, 9], [168, 40]]))
    assert buckets.pairs == [(20, 3), (44, 9), (162, 31)]
    assert buckets.pair(1, 1) == (20, 3)
    assert buckets.pair(20, 4) == (44, 9)
    assert buckets.pair(45, 1) == (162, 31)
    # Longer than a model takes.
    assert buckets.pair(163, 31) == (324, 31)
    ids = np.ones((2, 5), "int32")
    inputs, targets = buckets.pad(
        (
            {"encoder_token_ids": ids, "decoder_token_ids": ids[:, :3]},
            ids[:, 2:],
        ),
        rows=3,
    )
    assert inputs["encoder_token_ids"].shape == (3, 20)
    assert inputs["decoder_token_ids"].shape == targets.shape == (3, 3)
    assert (targets[2] == 7).all()
    assert (inputs["encoder_token_ids"][:2] == [1] * 5 + [7] * 15).all()


def test_prefetch_raises_an_error_in_its_place():
    def numbers():
        yield from range(1, 6)
        reached.set()
        raise OSError("the disk is gone")

    reached = threading.Event()
    ahead = prefetch(numbers(), size=10)
    assert next(ahead) == 1
    assert reached.wait(60)
    assert [next(ahead) for _ in range(4)] == [2, 3, 4, 5]
    with pytest.raises(OSError, match="gone"):
        next(ahead)


def test_prefetch_does_not_wait_when_it_is_interrupted():
    others = threading.enumerate()
    goes_on = threading.Event()
    ahead = prefetch(iter(goes_on.wait, None), size=3)

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            next(ahead)
    finally:
        signal.signal(signal.SIGALRM, before)
        goes_on.set()
        for thread in set(threading.enumerate()) - set(others):
            thread.join(60)


def test_prefetch_is_bounded_and_its_thread_ends():
    threads = threading.active_count()
    made = []
    ahead = prefetch((made.append(n) or n for n in itertools.count()), size=3)
    assert [next(ahead), next(ahead)] == [0, 1]
    assert len(made) <= 2 + 3
    assert threading.active_count() == threads + 1
    ahead.close()
    assert threading.active_count() == threads
