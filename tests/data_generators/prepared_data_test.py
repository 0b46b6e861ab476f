import errno
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.data_generators.files import MODULES
from tests.data_generators.files import as_strings
from tests.data_generators.files import copy_texts
from tests.data_generators.files import problem_source
from tests.data_generators.files import text_path
from tests.data_generators.files import text_problems
from tpt_keras.data_generators import prepared_data
from tpt_keras.data_generators.mathematics_dataset import MathematicsDataset
from tpt_keras.data_generators.mathematics_modules import SPLITS
from tpt_keras.data_generators.mathematics_modules import TRAIN_SPLITS
from tpt_keras.data_generators.prepared_data import DATASETS
from tpt_keras.data_generators.prepared_data import dataset_builder
from tpt_keras.data_generators.prepared_data import prepare_dataset
from tpt_keras.data_generators.prepared_data import problem_sources
from tpt_keras.data_generators.prepared_data import train_splits
from tpt_keras.data_generators.record_file import RecordFile
from tpt_keras.errors import UsageError
from tpt_keras.training.metrics_log import read_metrics
from tpt_keras.training.train import train

MODULE = MODULES[0]


def read_all(source):
    return as_strings(source.read(np.arange(len(source))))


@pytest.fixture(scope="module")
def stock_dir(text_dir, tmp_path_factory):
    """A data folder with the stock dataset of a module."""
    folder = tmp_path_factory.mktemp("stock")
    prepare_dataset(MODULE, folder, text_dir, dataset="math_dataset")
    return folder


def test_the_splits_for_training():
    assert tuple(train_splits("mathematics_dataset")) == TRAIN_SPLITS
    assert train_splits("math_dataset") == ["train"]
    with pytest.raises(UsageError, match=r"'nothing'.*math_dataset"):
        train_splits("nothing")


@pytest.mark.parametrize("module", MODULES)
def test_the_problems_are_those_of_the_files(data_dir, text_dir, module):
    for splits in ([split] for split in SPLITS if split != "extrapolate"):
        source = problem_source(data_dir, module, splits)
        assert read_all(source) == text_problems(text_dir, splits, module)
    source = problem_source(
        str(data_dir), module, train_splits("mathematics_dataset")
    )
    assert read_all(source) == text_problems(text_dir, TRAIN_SPLITS, module)
    assert len(source) == 600


def test_a_split_that_a_module_lacks_is_passed_over(data_dir, text_dir):
    lengths = {
        module: len(problem_source(data_dir, module, ["extrapolate"]))
        for module in MODULES
    }
    assert list(lengths.values()) == [100, 100, 0]
    both = ["extrapolate", "interpolate"]
    assert len(problem_source(data_dir, MODULES[2], both)) == 100
    assert read_all(problem_source(data_dir, MODULE, both)) == (
        text_problems(text_dir, both, MODULE)
    )


def test_the_stock_dataset(stock_dir, text_dir):
    builder = dataset_builder(MODULE, stock_dir, "math_dataset")
    # Its own code, not ours.
    assert builder.is_prepared()
    assert builder.info.full_name == f"math_dataset/{MODULE}/1.0.0"
    assert set(builder.info.splits) == {"train", "test"}
    for split, theirs in (
        ("train", TRAIN_SPLITS),
        ("interpolate", ["interpolate"]),
    ):
        source = problem_source(stock_dir, MODULE, [split], "math_dataset")
        expected = text_problems(text_dir, theirs, MODULE)
        assert sorted(read_all(source)) == sorted(expected)
        assert len(source) == (600 if split == "train" else 100)


def test_the_stock_datasets_own_code_made_it(text_dir, tmp_path, monkeypatch):
    from tensorflow_datasets.datasets.math_dataset import (
        math_dataset_dataset_builder as stock,
    )

    called = []
    generate = stock.Builder._generate_examples
    monkeypatch.setattr(
        stock.Builder,
        "_generate_examples",
        lambda self, **kwargs: (
            called.append(kwargs["categories"]) or generate(self, **kwargs)
        ),
    )
    prepare_dataset(MODULES[2], tmp_path, text_dir, dataset="math_dataset")
    assert called == [
        ["train-easy", "train-medium", "train-hard"],
        ["interpolate"],
    ]


def test_the_stock_dataset_has_no_extrapolation(stock_dir):
    with pytest.raises(UsageError) as error:
        problem_source(stock_dir, MODULE, ["extrapolate"], "math_dataset")
    assert str(error.value) == (
        "Unknown split 'extrapolate'. Known splits: interpolate, train."
    )


@pytest.mark.slow
def test_a_training_from_the_stock_dataset(
    stock_dir, tmp_path, tiny_config, tiny_training
):
    config = tiny_training.replace(
        data_dir=str(stock_dir),
        dataset="math_dataset",
        evaluation_examples=20,
        train_steps=1,
        steps_per_evaluation=1,
    )
    train(tiny_config, config, tmp_path / "model")
    (row,) = read_metrics(tmp_path / "model")
    assert row["step"] == 1
    # It has no such split, which an evaluation passes over.
    assert f"interpolate/{MODULE}" in row
    assert not any(name.startswith("extrapolate") for name in row)
    assert (tmp_path / "model" / "model.keras").is_file()


@pytest.mark.parametrize(
    ("names", "parts"),
    [
        ({"module": "numbers__nothing"}, ["module 'numbers__nothing'", MODULE]),
        ({"splits": ["test"]}, ["split 'test'", "train_easy"]),
        ({"dataset": "nothing"}, ["dataset 'nothing'", *DATASETS]),
        ({"module": "numbers__gcd"}, ["numbers__gcd", "prepare_data"]),
        (
            {"dataset": "math_dataset", "splits": ["train"]},
            ["lacks the math_dataset of", "--dataset=math_dataset"],
        ),
        ({"data_dir": "nowhere"}, ["'nowhere'", "--data_dir=nowhere"]),
    ],
)
def test_what_is_not_there(data_dir, names, parts):
    arguments = {
        "data_dir": data_dir,
        "module": MODULE,
        "splits": ["interpolate"],
        **names,
    }
    with pytest.raises(UsageError) as error:
        problem_source(**arguments)
    for part in parts:
        assert part in str(error.value)


def test_all_modules_that_are_missing_are_named(data_dir):
    missing = ["numbers__gcd", "algebra__linear_1d"]
    with pytest.raises(UsageError) as error:
        problem_sources(data_dir, [MODULE, *missing], ["interpolate"])
    assert str(error.value) == (
        f"The data folder '{data_dir}' lacks the mathematics_dataset of "
        "numbers__gcd, algebra__linear_1d. Make them with "
        "tpt_keras prepare_data --modules=numbers__gcd,algebra__linear_1d "
        f"--data_dir={data_dir} --dataset=mathematics_dataset."
    )


@pytest.mark.parametrize("name", ["a[1]", "b*", "c?", "d\\e"])
def test_a_folder_whose_name_is_a_pattern(data_dir, tmp_path, name):
    """In which TensorFlow Datasets finds nothing of what it wrote."""
    folder = shutil.copytree(data_dir, tmp_path / name)
    for access in (
        lambda: dataset_builder(MODULE, folder),
        lambda: problem_source(folder, MODULE, ["interpolate"]),
        lambda: prepare_dataset(MODULE, folder, folder),
    ):
        with pytest.raises(UsageError, match=r"patterns.*--data_dir") as error:
            access()
        assert repr(str(folder)) in str(error.value)


@pytest.fixture
def copied_dir(data_dir, tmp_path):
    """A data folder that a test may damage."""
    return shutil.copytree(data_dir, tmp_path / "data")


@pytest.mark.parametrize(
    "content", [b"", b'{"name": "mathematics_da', b"[]", b"{}", b"\xff\x00"]
)
def test_a_damaged_description(copied_dir, content):
    folder = dataset_builder(MODULE, copied_dir).data_path
    (folder / "dataset_info.json").write_bytes(content)
    with pytest.raises(UsageError) as error:
        problem_source(copied_dir, MODULE, ["interpolate"])
    message = str(error.value)
    assert f"dataset in {folder} is damaged (" in message
    assert message.endswith(
        "Remove this folder. Make it with tpt_keras prepare_data "
        f"--modules={MODULE} --data_dir={copied_dir} "
        "--dataset=mathematics_dataset."
    )


def test_a_damaged_description_of_the_stock_dataset(stock_dir, tmp_path):
    copied_dir = shutil.copytree(stock_dir, tmp_path / "stock")
    folder = dataset_builder(MODULE, copied_dir, "math_dataset").data_path
    cut_off(folder / "dataset_info.json")
    with pytest.raises(UsageError) as error:
        problem_source(copied_dir, MODULE, ["train"], "math_dataset")
    assert f"dataset in {folder} is damaged (" in str(error.value)
    assert "--dataset=math_dataset" in str(error.value)


def test_a_defect_is_no_damage(monkeypatch, data_dir):
    def defect(*args, **kwargs):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(prepared_data, "MathematicsDataset", defect)
    with pytest.raises(ZeroDivisionError):
        dataset_builder("numbers__gcd", data_dir)


@pytest.mark.parametrize("records", [0, 99])
def test_a_file_that_ends_behind_a_record(copied_dir, records):
    """All of it is whole, but there was more."""
    builder = dataset_builder(MODULE, copied_dir)
    (path,) = builder.info.splits["interpolate"].filepaths
    whole = RecordFile(path).read(np.arange(100))
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in whole[:records]:
            writer.write(record)
    with pytest.raises(UsageError) as error:
        problem_source(copied_dir, MODULE, ["interpolate"])
    assert f"{builder.data_path} holds {records} problems" in str(error.value)
    assert "dataset_info.json says 100" in str(error.value)
    assert "tpt_keras prepare_data" in str(error.value)


def test_a_file_that_is_gone(text_dir, tmp_path):
    builder = prepare_dataset(MODULE, tmp_path, text_dir)
    (path,) = builder.info.splits["interpolate"].filepaths
    os.remove(path)
    with pytest.raises(UsageError, match=f"{path} .* is gone"):
        problem_source(tmp_path, MODULE, ["interpolate"])
    assert len(problem_source(tmp_path, MODULE, ["train_easy"])) == 200


def test_the_release_is_kept_apart_too(text_dir, tmp_path):
    folder = copy_texts(text_dir, tmp_path)
    for report in folder.glob("*/*.json"):
        report.unlink()  # as in the released archive
    path = text_path(folder, "train_hard", MODULE)
    lines = path.read_text().splitlines(keepends=True)
    question = text_problems(text_dir, ["interpolate"], MODULE)[0][0]
    path.write_text("".join([f"{question}\n", *lines[1:]]))
    builder = prepare_dataset(MODULE, tmp_path / "data", folder)
    assert builder.info.metadata["also_in_evaluation"] == 1
    source = problem_source(tmp_path / "data", MODULE, ["train_hard"])
    assert len(source) == 199
    assert question not in [q for q, _ in read_all(source)]


def test_one_process_prepares_a_dataset(text_dir, tmp_path, monkeypatch):
    split_generators = MathematicsDataset._split_generators
    messages = []

    def meanwhile(self, dl_manager):
        if not messages:
            with pytest.raises(UsageError) as error:
                prepare_dataset(MODULE, tmp_path, text_dir)
            messages.append(str(error.value))
            # Another is another matter.
            prepare_dataset(MODULES[2], tmp_path, text_dir)
        return split_generators(self, dl_manager)

    monkeypatch.setattr(MathematicsDataset, "_split_generators", meanwhile)
    prepare_dataset(MODULE, tmp_path, text_dir)
    folder = tmp_path / "mathematics_dataset" / MODULE
    assert f"prepares a dataset in the folder '{folder}'" in messages[0]
    for module in (MODULE, MODULES[2]):
        assert len(problem_source(tmp_path, module, TRAIN_SPLITS)) == 600
    assert names_below(tmp_path) == [
        str(tmp_path / "mathematics_dataset" / module / "1.0.0")
        for module in sorted((MODULE, MODULES[2]))
    ]


@pytest.mark.parametrize("dataset", DATASETS)
def test_a_half_written_dataset_is_made_anew(text_dir, tmp_path, dataset):
    builder = prepare_dataset(MODULE, tmp_path, text_dir, dataset)
    (builder.data_path / "dataset_info.json").unlink()
    (builder.data_path / "left.over").write_text("")
    prepare_dataset(MODULE, tmp_path, text_dir, dataset)
    assert_prepared(tmp_path, dataset)
    assert not (builder.data_path / "left.over").exists()


def names_below(data_dir):
    """What there is of datasets under its final name, or half-written."""
    return sorted(str(path) for path in data_dir.glob("*/*__*/[!.]*"))


def assert_prepared(data_dir, dataset):
    splits = train_splits(dataset)
    assert len(problem_source(data_dir, MODULE, splits, dataset)) == 600


def remove(path):
    path.unlink()


def cut_off(path):
    path.write_bytes(path.read_bytes()[:-5])


def drop_a_line(path):
    path.write_bytes(b"".join(path.read_bytes().splitlines(True)[:-1]))


def empty(path):
    path.write_bytes(b"")


def no_ascii(path):
    path.write_bytes(path.read_bytes().replace(b"?", b"\xc3\xa9", 1))


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove, "is missing"),
        (cut_off, "is cut off"),
        (drop_a_line, "is cut off"),
        (empty, "is empty"),
        (no_ascii, "line 1: the character '\xc3'"),
    ],
)
def test_a_damaged_file(text_dir, tmp_path, dataset, damage, message):
    folder = copy_texts(text_dir, tmp_path)
    data_dir = tmp_path / "data"
    path = text_path(folder, "train_medium", MODULE)
    whole = path.read_bytes()
    damage(path)
    with pytest.raises(UsageError) as error:
        prepare_dataset(MODULE, data_dir, folder, dataset)
    assert message in str(error.value)
    assert MODULE in str(error.value)
    assert "train-medium" in str(error.value)
    assert names_below(data_dir) == []
    split = train_splits(dataset)[0]
    with pytest.raises(UsageError, match="prepare_data"):
        problem_source(data_dir, MODULE, [split], dataset)
    # Once the file is restored, all is well.
    path.write_bytes(whole)
    prepare_dataset(MODULE, data_dir, folder, dataset)
    assert (
        len(problem_source(data_dir, MODULE, train_splits(dataset), dataset))
        == 600
    )


def full_disk(*args, **kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "somewhere")


def full_disk_in_tensorflow(*args, **kwargs):
    raise tf.errors.ResourceExhaustedError(
        None, None, "somewhere; No space left on device"
    )


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("failure", [full_disk, full_disk_in_tensorflow])
@pytest.mark.parametrize("method", ["write", "__exit__"])
def test_a_full_disk(text_dir, tmp_path, monkeypatch, dataset, failure, method):
    with monkeypatch.context() as patch:
        patch.setattr(tf.io.TFRecordWriter, method, failure)
        with pytest.raises(OSError, match="No space left") as error:
            prepare_dataset(MODULE, tmp_path, text_dir, dataset)
    assert error.value.errno == errno.ENOSPC
    assert "somewhere" in str(error.value)
    assert names_below(tmp_path) == []
    prepare_dataset(MODULE, tmp_path, text_dir, dataset)
    assert (
        len(problem_source(tmp_path, MODULE, train_splits(dataset), dataset))
        == 600
    )


def test_a_defect_keeps_its_traceback(text_dir, tmp_path, monkeypatch):
    def defect(*args):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(tf.io.TFRecordWriter, "write", defect)
    with pytest.raises(ZeroDivisionError, match="a defect"):
        prepare_dataset(MODULE, tmp_path, text_dir)
