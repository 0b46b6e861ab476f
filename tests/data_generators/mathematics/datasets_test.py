import json
import os
import pathlib
import shutil

import pytest
import tensorflow as tf

from tests.data_generators.files import MODULES
from tests.data_generators.files import all_texts
from tests.data_generators.files import copy_texts
from tests.data_generators.files import text_path
from tests.data_generators.files import text_problems
from tests.experiments.command import run_python
from tests.refusals import refused
from tpt_keras.data_generators import open_task
from tpt_keras.data_generators.mathematics import archive
from tpt_keras.data_generators.mathematics.datasets import dataset_builder
from tpt_keras.data_generators.mathematics.datasets import prepare_dataset
from tpt_keras.data_generators.token_cache import NAME
from tpt_keras.errors import UnreadableFileError
from tpt_keras.files import folder_lock

MODULE = MODULES[0]


def texts(data_dir, module, split, dataset="mathematics_dataset"):
    """A split's examples; an empty list if the module lacks it."""
    examples = open_task(dataset, data_dir, [module]).examples(split)
    return all_texts(examples[module]) if module in examples else []


@pytest.mark.parametrize("module", MODULES)
def test_examples_are_the_problems_of_the_files(data_dir, text_dir, module):
    training = text_problems(text_dir, archive.TRAIN_SPLITS, module)
    assert texts(str(data_dir), module, "train") == training
    for split in archive.EVALUATION_SPLITS:
        splits = [split] if archive.split_module(split, module) else []
        problems = text_problems(text_dir, splits, module)
        assert texts(data_dir, module, split) == problems


def test_stock_dataset_is_made_by_its_own_code(text_dir, tmp_path):
    prepare_dataset(MODULE, tmp_path, text_dir, dataset="math_dataset")
    builder = dataset_builder(MODULE, tmp_path, "math_dataset")
    assert builder.info.full_name == f"math_dataset/{MODULE}/1.0.0"
    for split, theirs in (
        ("train", archive.TRAIN_SPLITS),
        ("interpolate", ["interpolate"]),
    ):
        found = texts(tmp_path, MODULE, split, "math_dataset")
        assert sorted(found) == sorted(text_problems(text_dir, theirs, MODULE))


LOAD = """
import json, sys
import tensorflow_datasets as tfds

data_dir, *names = sys.argv[1:]
loaded = {}
for name in names:
    splits, info = tfds.load(name, data_dir=data_dir, with_info=True)
    loaded[name] = {
        "metadata": info.metadata,
        "splits": {
            split: [
                (example["question"].decode(), example["answer"].decode())
                for example in tfds.as_numpy(dataset)
            ]
            for split, dataset in splits.items()
        },
    }
assert not any(name.startswith("tpt_keras") for name in sys.modules)
print(json.dumps(loaded))
"""


@pytest.mark.slow
def test_plain_tfds_reads_it(data_dir, text_dir):
    names = [f"mathematics_dataset/{module}" for module in MODULES]
    result = run_python("-I", "-c", LOAD, data_dir, *names).succeeded()
    loaded = json.loads(result.stdout)
    for module, dataset in zip(MODULES, loaded.values(), strict=True):
        splits = dataset["splits"]
        assert set(splits) == {
            split
            for split in archive.SPLITS
            if archive.split_module(split, module)
        }
        for split, problems in splits.items():
            problems = [tuple(problem) for problem in problems]
            assert problems == text_problems(text_dir, [split], module)
        report = archive.report_path(text_dir / archive.FOLDER, module)
        metadata = {"generated": json.loads(report.read_text())}
        assert dataset["metadata"] == metadata


def test_release_is_kept_apart_from_evaluation(text_dir, tmp_path):
    folder = copy_texts(text_dir, tmp_path)
    for report in folder.glob("*/*.json"):
        report.unlink()  # as in the released archive
    path = text_path(folder, "train_hard", MODULE)
    lines = path.read_text().splitlines(keepends=True)
    question = text_problems(text_dir, ["interpolate"], MODULE)[0][0]
    path.write_text("".join([f"{question}\n", *lines[1:]]))
    builder = prepare_dataset(MODULE, tmp_path / "data", folder)
    assert builder.info.metadata["also_in_evaluation"] == 1
    found = texts(tmp_path / "data", MODULE, "train")
    assert len(found) == 599
    assert question not in [question for question, _ in found]


@pytest.mark.parametrize("name", ["a[1]", "b*"])
def test_folder_named_like_a_pattern_is_refused(tmp_path, name):
    """TensorFlow Datasets finds nothing of what it writes there."""
    with refused("data_dir"):
        dataset_builder(MODULE, tmp_path / name)


def flip_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut_off(path):
    path.write_bytes(path.read_bytes()[:-5])


def drop_records(path):
    records = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records[:-1]:
            writer.write(record)


@pytest.mark.parametrize(
    "damage", [flip_bit, cut_off, drop_records, pathlib.Path.unlink]
)
def test_damaged_records_are_refused(data_dir, tmp_path, damage):
    copied_dir = shutil.copytree(data_dir, tmp_path / "data")
    builder = dataset_builder(MODULE, copied_dir)
    (path,) = builder.info.splits["interpolate"].filepaths
    damage(pathlib.Path(path))
    os.utime(builder.data_path / "features.json", ns=(1, 1))
    with refused(path=builder.data_path):
        texts(copied_dir, MODULE, "interpolate")


def test_one_process_prepares_a_dataset(text_dir, tmp_path):
    folder = tmp_path / "mathematics_dataset" / MODULE
    with folder_lock(folder, "tests"):
        with refused(path=folder):
            prepare_dataset(MODULE, tmp_path, text_dir)
        prepare_dataset(MODULES[2], tmp_path, text_dir)


@pytest.mark.parametrize("dataset", archive.DATASETS)
def test_half_written_dataset_is_made_again(text_dir, tmp_path, dataset):
    builder = prepare_dataset(MODULE, tmp_path, text_dir, dataset)
    assert len(texts(tmp_path, MODULE, "train", dataset)) == 600
    (builder.data_path / "dataset_info.json").unlink()
    with refused(path=builder.data_path, error=UnreadableFileError):
        texts(tmp_path, MODULE, "train", dataset)
    (builder.data_path / "left.over").write_text("")
    # As of a killed preparation.
    killed = builder.data_path.parent / "incomplete.AB12_1.0.0"
    killed.mkdir()
    (killed / "dataset_info.json").write_text("")
    prepare_dataset(MODULE, tmp_path, text_dir, dataset)
    assert len(texts(tmp_path, MODULE, "train", dataset)) == 600
    assert not (builder.data_path / "left.over").exists()
    assert not killed.exists()
    assert (builder.data_path / NAME).exists()
