import functools
import json
import types

import pytest

from tests.data_generators.files import MODULES
from tests.data_generators.files import all_texts
from tests.data_generators.files import copy_texts
from tests.data_generators.files import text_path
from tests.data_generators.files import tree
from tpt_keras.data_generators.mathematics import shards
from tpt_keras.data_generators.mathematics.archive import FOLDER
from tpt_keras.data_generators.mathematics.datasets import dataset_builder
from tpt_keras.data_generators.mathematics.datasets import prepare_dataset
from tpt_keras.data_generators.mathematics.shards import write_shard
from tpt_keras.data_generators.mathematics.task import MathematicsTask
from tpt_keras.errors import UsageError

beam = pytest.importorskip("apache_beam", reason="needs tpt_keras[beam]")

pytestmark = pytest.mark.slow


def test_problems_are_those_of_one_machine(text_dir, tmp_path, monkeypatch):
    from tpt_keras.data_generators.mathematics import beam as beam_generation

    rounds = []
    pipeline = beam.Pipeline
    monkeypatch.setattr(
        beam,
        "Pipeline",
        lambda options: rounds.append(options) or pipeline(options=options),
    )
    # Resumes from a shard that is there.
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
    assert tree(tmp_path) == tree(text_dir / FOLDER)
    # Duplicates left a split short, for which a further round drew more.
    assert len(rounds) >= 2
    # And a run over finished modules has nothing to do.
    count = len(rounds)
    beam_generation.generate_modules_with_beam(
        MODULES, tmp_path, 600, 100, seed=3
    )
    assert len(rounds) == count


def test_errors_of_the_generator(tmp_path, monkeypatch):
    from tpt_keras.data_generators.mathematics import beam as beam_generation

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

    monkeypatch.setattr(shards, "problem_functions", functions(draw_nothing))
    with pytest.raises(UsageError, match=module):
        generate()
    monkeypatch.setattr(shards, "problem_functions", functions(draw))
    generate()
    report = json.loads((tmp_path / f"{module}.json").read_text())
    assert report["raised"] == 4  # one in each split's shard
    assert report["examples"]["interpolate"] == 1


def options():
    from apache_beam.options.pipeline_options import PipelineOptions

    return PipelineOptions([])


def test_dataset_written_with_beam_has_the_same_problems(
    text_dir, data_dir, tmp_path
):
    module = MODULES[0]
    builder = prepare_dataset(
        module, tmp_path, text_dir, beam_options=options()
    )
    theirs = dataset_builder(module, data_dir)
    assert builder.info.metadata == theirs.info.metadata
    ours, expected = (
        MathematicsTask(folder, [module]) for folder in (tmp_path, data_dir)
    )
    for split in theirs.info.splits:
        problems, others = (
            sorted(all_texts(task.examples(split)[module]))
            for task in (ours, expected)
        )
        assert problems == others


def test_damaged_file_is_refused(text_dir, tmp_path):
    folder = copy_texts(text_dir, tmp_path)
    path = text_path(folder, "train_hard", MODULES[0])
    path.write_bytes(path.read_bytes().replace(b"?", b"%", 1))
    with pytest.raises(UsageError) as error:
        prepare_dataset(
            MODULES[0], tmp_path / "data", folder, beam_options=options()
        )
    assert f"{MODULES[0]} (train-hard), line 1" in str(error.value)
    assert not dataset_builder(MODULES[0], tmp_path / "data").is_prepared()
