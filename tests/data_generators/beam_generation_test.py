import functools
import json
import types

import pytest

from tests.data_generators.files import MODULES
from tests.data_generators.files import problem_source
from tests.data_generators.files import tree
from tpt_keras.data_generators import official_text
from tpt_keras.data_generators import problem_shards
from tpt_keras.data_generators.prepared_data import dataset_builder
from tpt_keras.data_generators.prepared_data import prepare_dataset
from tpt_keras.data_generators.problem_shards import write_shard
from tpt_keras.errors import UsageError

beam = pytest.importorskip("apache_beam", reason="needs tpt_keras[beam]")

pytestmark = pytest.mark.slow


def test_the_problems_are_those_of_one_machine(text_dir, tmp_path, monkeypatch):
    from tpt_keras.data_generators import beam_generation

    rounds = []
    pipeline = beam.Pipeline
    monkeypatch.setattr(
        beam,
        "Pipeline",
        lambda options: rounds.append(options) or pipeline(options=options),
    )
    # It goes on from a shard that is there.
    write_shard(
        tmp_path / "shards" / MODULES[0] / "interpolate-000000.json",
        MODULES[0],
        "interpolate",
        0,
        seed=3,
    )
    beam_generation.generate_modules_with_beam(
        MODULES, tmp_path, 600, 100, seed=3
    )
    assert tree(tmp_path) == tree(text_dir / official_text.FOLDER)
    # Duplicates left a split short, for which a further round drew more.
    assert len(rounds) >= 2
    # And a run over finished modules has nothing to do.
    count = len(rounds)
    beam_generation.generate_modules_with_beam(
        MODULES, tmp_path, 600, 100, seed=3
    )
    assert len(rounds) == count


def test_what_the_generator_raises(tmp_path, monkeypatch):
    from tpt_keras.data_generators import beam_generation

    module = "numbers__is_prime"

    def generate():
        beam_generation.generate_modules_with_beam([module], tmp_path, 3, 1)

    def functions(draw):
        return lambda split: {module: functools.partial(draw, iter(range(999)))}

    def draw_nothing(calls):
        raise AssertionError("impossible")

    def draw(calls):
        if (call := next(calls)) == 7:
            raise AssertionError
        return types.SimpleNamespace(question=f"Is {call} prime?", answer=1)

    monkeypatch.setattr(
        problem_shards, "problem_functions", functions(draw_nothing)
    )
    with pytest.raises(UsageError, match=f"module {module} .*impossible"):
        generate()
    monkeypatch.setattr(problem_shards, "problem_functions", functions(draw))
    generate()
    report = json.loads((tmp_path / f"{module}.json").read_text())
    assert report["raised"] == 4  # one in each split's shard
    assert report["examples"]["interpolate"] == 1


def options():
    from apache_beam.options.pipeline_options import PipelineOptions

    return PipelineOptions([])


def test_a_dataset_written_with_beam_reads_the_same(
    text_dir, data_dir, tmp_path
):
    module = MODULES[0]
    builder = prepare_dataset(
        module, tmp_path, text_dir, beam_options=options()
    )
    theirs = dataset_builder(module, data_dir)
    for split, info in theirs.info.splits.items():
        assert builder.info.splits[split].num_examples == info.num_examples
        count = info.num_examples
        ours = problem_source(tmp_path, module, [split]).read(range(count))
        expected = problem_source(data_dir, module, [split]).read(range(count))
        assert sorted(zip(*ours)) == sorted(zip(*expected))
    assert builder.info.metadata == theirs.info.metadata


def test_a_damaged_file(text_dir, tmp_path):
    from tests.data_generators.files import copy_texts
    from tests.data_generators.files import text_path

    folder = copy_texts(text_dir, tmp_path)
    path = text_path(folder, "train_hard", MODULES[0])
    path.write_bytes(path.read_bytes().replace(b"?", b"%", 1))
    with pytest.raises(UsageError) as error:
        prepare_dataset(
            MODULES[0], tmp_path / "data", folder, beam_options=options()
        )
    assert f"Module {MODULES[0]} (train-hard), line 1" in str(error.value)
    assert not dataset_builder(MODULES[0], tmp_path / "data").is_prepared()
