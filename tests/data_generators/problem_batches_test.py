import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from tests.data_generators.list_source import ListSource
from tests.data_generators.list_source import numbered_source
from tpt_keras.data_generators import problem_batches
from tpt_keras.data_generators.length_pairs import choose_length_pairs
from tpt_keras.data_generators.length_pairs import fitting_pair
from tpt_keras.data_generators.problem_batches import ProblemBatches
from tpt_keras.data_generators.problem_batches import similar_length_batches
from tpt_keras.data_generators.problem_mixture import ProblemMixture
from tpt_keras.errors import UsageError
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer

TOKENIZER = CharacterTokenizer()


@pytest.fixture
def small_windows(monkeypatch):
    """Several windows an epoch, of few problems."""
    monkeypatch.setattr(problem_batches, "WINDOW_BATCHES", 3)


def decode(batch):
    """The problems of a batch, read from its token ids."""
    inputs, targets = batch
    sources, decoder = inputs["encoder_token_ids"], inputs["decoder_token_ids"]
    assert len(sources) == len(decoder) == len(targets)
    assert sources.dtype == decoder.dtype == targets.dtype == np.int32
    # The decoder reads what it is to say, a step behind.
    assert np.all(decoder[:, :1] == TOKENIZER.start_id)
    is_text = targets[:, 1:] != TOKENIZER.pad_id
    np.testing.assert_array_equal(
        decoder[:, 1:][is_text], targets[:, :-1][is_text]
    )
    return [
        (TOKENIZER.decode(source).encode(), TOKENIZER.decode(target).encode())
        for source, target in zip(sources, targets)
    ]


def all_problems(source):
    return list(zip(*source.read(np.arange(len(source)))))


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


@pytest.mark.slow
@given(st.integers(1, 90), st.integers(1, 20), st.integers(0, 2**32))
def test_every_epoch_visits_every_problem_once(count, batch_size, seed):
    source = numbered_source(count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(problem_batches, "WINDOW_BATCHES", 3)
        batches = ProblemBatches(source, TOKENIZER, batch_size, seed)
        assert len(batches) == count
        first, second = epochs(batches, 2)
    for epoch in (first, second):
        problems = [problem for batch in epoch for problem in batch]
        assert sorted(problems) == sorted(all_problems(source))
        sizes = sorted(map(len, epoch))
        assert sizes[1:] == [batch_size] * (len(epoch) - 1)
        assert sizes[0] == count - batch_size * (len(epoch) - 1)


@pytest.mark.usefixtures("small_windows")
def test_epochs_and_seeds_differ():
    source = numbered_source(300)
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


@settings(max_examples=40)
@given(st.integers(0, 60), st.integers(1, 60), st.integers(1, 9))
def test_start_step_is_skipping(start_step, count, batch_size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(problem_batches, "WINDOW_BATCHES", 3)
        batches = ProblemBatches(
            numbered_source(count), TOKENIZER, batch_size, seed=4
        )
        skipped = itertools.islice(
            batches.iterate(), start_step, start_step + 8
        )
        started = itertools.islice(batches.iterate(start_step), 8)
        pairs = list(zip(started, skipped, strict=True))
    assert len(pairs) == 8
    for batch, other in pairs:
        assert_batches_equal(batch, other)


def test_start_step_reads_nothing_before(monkeypatch):
    monkeypatch.setattr(problem_batches, "WINDOW_BATCHES", 64)
    batches = ProblemBatches(numbered_source(1000), TOKENIZER, 10)
    read = []
    source_read = batches.source.read
    monkeypatch.setattr(
        batches.source,
        "read",
        lambda indices: read.append(len(indices)) or source_read(indices),
    )
    next(batches.iterate(start_step=100 * 10**6 + 70))
    # What tells the lengths, and one window: the second of an epoch of 100
    # batches.
    assert sorted(read) == [(100 - 64) * 10, 1000]


@pytest.mark.usefixtures("small_windows")
def test_the_end():
    batches = ProblemBatches(numbered_source(50), TOKENIZER, 8)
    assert batches.steps_per_epoch == 7
    assert len(list(batches.iterate(num_epochs=2))) == 14
    assert len(list(batches.iterate(start_step=5, num_epochs=2))) == 9
    assert list(batches.iterate(start_step=14, num_epochs=2)) == []


@pytest.mark.parametrize("workers", [1, 2, 3, 20])
@pytest.mark.usefixtures("small_windows")
def test_workers_share_every_batch(workers):
    # The last batch has fewer rows than there are workers.
    batches = ProblemBatches(numbered_source(50), TOKENIZER, 8, seed=3)
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


def test_a_workers_part_of_a_dataset():
    batches = ProblemBatches(numbered_source(9), TOKENIZER, 8)
    for index in range(4):
        dataset = batches.dataset(
            num_epochs=1, shards=range(index, index + 1), num_shards=4
        )
        assert dataset.cardinality() == 2
        sizes = [len(targets) for _, targets in dataset]
        assert sorted(sizes) == [int(index == 0), 2]


@pytest.mark.parametrize("start_step", [0, 4])
@pytest.mark.usefixtures("small_windows")
def test_a_worker_of_several_replicas_takes_their_parts_in_turn(start_step):
    batches = ProblemBatches(numbered_source(50), TOKENIZER, 8, seed=3)
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


@pytest.mark.usefixtures("small_windows")
def test_indices_tell_what_a_batch_holds():
    source = numbered_source(50)
    batches = ProblemBatches(source, TOKENIZER, 8, seed=3)
    # Over the ends of windows and of an epoch.
    for step, batch in enumerate(batches.iterate(num_epochs=3)):
        indices = batches.indices(step)
        assert list(zip(*source.read(indices))) == decode(batch)


def test_the_encoding_is_the_tokenizers():
    problems = [(b"What is 2 - 3?", b"-1"), (b"?", b"True"), (b"1 {}", b"z")]
    batches = ProblemBatches(ListSource(problems), TOKENIZER, 3)
    ((inputs, targets),) = batches.iterate(num_epochs=1)
    assert sorted(decode((inputs, targets))) == sorted(problems)
    questions = [q.decode() for q, _ in decode((inputs, targets))]
    answers = [a.decode() for _, a in decode((inputs, targets))]
    np.testing.assert_array_equal(
        inputs["encoder_token_ids"], TOKENIZER.encode_questions(questions)
    )
    whole = TOKENIZER.encode_questions(answers)
    np.testing.assert_array_equal(inputs["decoder_token_ids"], whole[:, :-1])
    np.testing.assert_array_equal(targets, whole[:, 1:])


def test_another_vocabulary():
    vocabulary = ("<unknown>", "b", "<end>", "<pad>", "a", "<start>")
    tokenizer = CharacterTokenizer(vocabulary)
    source = ListSource([(b"ab", b"b"), (b"a", b"bb")])
    ((inputs, targets),) = ProblemBatches(source, tokenizer, 2).iterate(
        num_epochs=1
    )
    rows = sorted(inputs["encoder_token_ids"].tolist())
    assert rows == [[5, 4, 1, 2], [5, 4, 2, 3]]
    assert sorted(targets.tolist()) == [[1, 1, 2], [1, 2, 3]]


def test_characters_of_several_bytes():
    # "Ã" and "©" are what the bytes of "é" are in Latin-1.
    vocabulary = ("<pad>", "<start>", "<end>", *"1+=é÷π日🙂Ã©")
    tokenizer = CharacterTokenizer(vocabulary)
    problems = [("1é1", "π"), ("日÷🙂", "1÷1"), ("1+1=1+1", "é©Ã"), ("π", "日")]
    source = ListSource((q.encode(), a.encode()) for q, a in problems)
    ((inputs, targets),) = ProblemBatches(source, tokenizer, 4).iterate(
        num_epochs=1
    )
    questions = map(tokenizer.decode, inputs["encoder_token_ids"])
    answers = map(tokenizer.decode, targets)
    batch = list(zip(questions, answers))
    assert sorted(batch) == sorted(problems)
    # As many rows and columns as characters, not as bytes.
    np.testing.assert_array_equal(
        inputs["encoder_token_ids"],
        tokenizer.encode_questions([question for question, _ in batch]),
    )
    assert targets.shape == (4, 4)


@pytest.mark.parametrize(
    ("problem", "character"),
    [
        ((b"1 % 2", b"1"), "'%'"),
        ((b"1", b"1_"), "'_'"),
        ((b"caf\xc3\xa9", b"1"), "'\xe9'"),
        ((b"1", "🙂".encode()), "'🙂'"),
        ((b"1\xff", b"1"), "'\N{REPLACEMENT CHARACTER}'"),
    ],
)
def test_a_character_outside_the_vocabulary(problem, character):
    source = ListSource([(b"1", b"1"), problem, (b"2", b"2")])
    with pytest.raises(UsageError) as error:
        list(ProblemBatches(source, TOKENIZER, 3).iterate(num_epochs=1))
    assert f"character {character}" in str(error.value)


def test_no_problems():
    with pytest.raises(UsageError, match="empty"):
        ProblemBatches(ListSource([]), TOKENIZER, 8)


LENGTHS = st.tuples(st.integers(2, 162), st.integers(1, 31))


@given(
    st.lists(LENGTHS, min_size=1, max_size=300),
    st.lists(LENGTHS, min_size=1, max_size=6),
    st.integers(1, 12),
)
def test_batches_of_similar_lengths_are_a_partition(lengths, pairs, batch_size):
    batches = similar_length_batches(
        np.array(lengths),
        np.array(sorted(pairs, key=sum)),
        batch_size,
        np.random.default_rng(0),
    )
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    sizes = sorted(map(len, batches))
    assert len(sizes) == -(-len(lengths) // batch_size)
    assert sizes[1:] == [batch_size] * (len(sizes) - 1)


def padding(lengths, batches, pairs=None):
    cells = 0
    for rows in batches:
        longest = lengths[rows].max(axis=0)
        if pairs is not None:
            longest = pairs[fitting_pair(longest[None], pairs)][0]
        cells += len(rows) * longest
    return 1 - lengths.sum(axis=0) / cells


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [16, 64])
def test_batches_of_similar_lengths_pad_less(batch_size):
    rng = np.random.default_rng(0)
    count = problem_batches.WINDOW_BATCHES * batch_size
    sources = rng.integers(12, 163, count)
    targets = 2 + rng.geometric(0.3, count).clip(0, 29)
    lengths = np.stack([sources, targets], axis=-1)
    pairs = choose_length_pairs(lengths)
    random_batches = rng.permutation(count).reshape(-1, batch_size)
    batches = similar_length_batches(lengths, pairs, batch_size, rng)
    assert np.all(padding(lengths, random_batches) > (0.4, 0.5))
    assert np.all(padding(lengths, batches) < (0.15, 0.25))
    # Padded to the few pairs, too, nearly as little as each problem by itself.
    cells = pairs[fitting_pair(lengths, pairs)].sum(axis=0)
    least = 1 - lengths.sum(axis=0) / cells
    assert np.all(padding(lengths, batches, pairs) < least + 0.05)


def test_batches_mix_modules():
    """Although the modules have problems of lengths of their own."""
    rng = np.random.default_rng(0)
    sources = [
        ListSource(
            (
                (name + "x" * length).encode() + str(index).encode(),
                b"1" * (1 + index % 5),
            )
            for index, length in enumerate(rng.integers(low, low + 60, 600))
        )
        for name, low in (("a", 10), ("b", 30), ("c", 50))
    ]
    batches = ProblemBatches(ProblemMixture(sources), TOKENIZER, 32)
    (epoch,) = epochs(batches, 1)
    modules = [len({question[:1] for question, _ in batch}) for batch in epoch]
    assert min(modules) >= 1
    assert np.mean(np.array(modules) >= 2) > 0.8
    # And modules do not take turns: every half of the epoch has all.
    half = [q for batch in epoch[: len(epoch) // 2] for q, _ in batch]
    for name in (b"a", b"b", b"c"):
        assert sum(q.startswith(name) for q in half) > 150


def test_dataset_is_what_iterate_generates():
    batches = ProblemBatches(numbered_source(60), TOKENIZER, 8, seed=2)
    dataset = batches.dataset(start_step=3, num_epochs=2)
    assert dataset.cardinality() == 13
    pairs = list(
        zip(dataset.as_numpy_iterator(), batches.iterate(3, 2), strict=True)
    )
    assert len(pairs) == 13
    for batch, other in pairs:
        assert_batches_equal(batch, other)


def test_a_dataset_without_end():
    batches = ProblemBatches(numbered_source(20), TOKENIZER, 8)
    dataset = batches.dataset(start_step=1)
    taken = list(dataset.take(7).as_numpy_iterator())
    expected = itertools.islice(batches.iterate(start_step=1), 7)
    for batch, other in zip(taken, expected, strict=True):
        assert_batches_equal(batch, other)
    assert batches.dataset(start_step=9, num_epochs=1).cardinality() == 0


def test_its_own_error_is_raised():
    """Not what tf.data makes of it, when it is reading that failed."""
    source = ListSource([(b"1 % 2", b"1")] * 3)
    batches = ProblemBatches(source, TOKENIZER, 2)
    with pytest.raises(UsageError) as error, batches.own_errors():
        list(batches.dataset(num_epochs=1))
    assert str(error.value).startswith("The character '%'")
    # An error of somebody else stays what it is, also behind one of its own.
    with pytest.raises(tf.errors.DataLossError), batches.own_errors():
        raise tf.errors.DataLossError(None, None, "something else")
    with pytest.raises(KeyError), batches.own_errors():
        raise KeyError


def test_a_window_is_read_once(monkeypatch):
    monkeypatch.setattr(problem_batches, "WINDOW_BATCHES", 4)
    batches = ProblemBatches(numbered_source(80), TOKENIZER, 5)
    assert len(batches.length_pairs)
    read = []
    source_read = batches.source.read
    monkeypatch.setattr(
        batches.source,
        "read",
        lambda indices: read.append(len(indices)) or source_read(indices),
    )
    for elements in (
        batches.iterate(num_epochs=1, shards=range(2), num_shards=2),
        batches.dataset(num_epochs=1),
    ):
        assert len(list(elements)) in (16, 32)
        assert read == [20] * 4
        read.clear()
    # Two at a time, far apart.
    part = batches._parts(range(1), 1)
    for step in range(4):
        part(step), part(12 + step)
    assert read == [20] * 2


@pytest.mark.parametrize(("sampled", "count"), [(3, 3), (100, 17)])
def test_the_lengths_of_the_first_problems(monkeypatch, sampled, count):
    monkeypatch.setattr(problem_batches, "SAMPLED_PROBLEMS", sampled)
    batches = ProblemBatches(numbered_source(17), TOKENIZER, 4)
    read = []
    source_read = batches.source.read
    monkeypatch.setattr(
        batches.source,
        "read",
        lambda indices: read.append(indices) or source_read(indices),
    )
    longest = batches.length_pairs[-1]
    (indices,) = read
    assert len(indices) == count
    questions, answers = source_read(indices)
    for texts, symbols, length, step in (
        (questions, 2, longest[0], 8),
        (answers, 1, longest[1], 4),
    ):
        assert 0 <= length - max(map(len, texts)) - symbols < step
