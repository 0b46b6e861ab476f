import json
import shutil

import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.data_generators.files import MODULES
from tests.data_generators.files import copy_texts
from tests.data_generators.files import text_path
from tests.data_generators.files import text_problems
from tests.data_generators.files import tree
from tpt_keras.data_generators.mathematics import archive
from tpt_keras.data_generators.mathematics import parquet
from tpt_keras.data_generators.mathematics.generator import problem_source
from tpt_keras.data_generators.mathematics.modules import SPLITS
from tpt_keras.data_generators.mathematics.modules import TRAIN_SPLITS
from tpt_keras.data_generators.mathematics.parquet import write_parquet
from tpt_keras.errors import UnreadableFileError
from tpt_keras.errors import UsageError
from tpt_keras.files import folder_lock


def write(text_dir, folder, modules=MODULES):
    return write_parquet(modules, text_dir / archive.FOLDER, folder)


@pytest.fixture(scope="module")
def folder(text_dir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parquet") / "problems"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "_ROWS_AT_ONCE", 77)
        write(text_dir, folder)
    return folder


@pytest.fixture
def copied(folder, tmp_path):
    """Files that a test may change."""
    return shutil.copytree(folder, tmp_path / "copied")


@pytest.fixture
def texts(text_dir, tmp_path):
    """Text files as of the release, that a test may change."""
    texts = copy_texts(text_dir, tmp_path)
    for report in texts.glob("*/*.json"):
        report.unlink()
    return texts


def splits_of(module):
    return [split for split in SPLITS if archive.split_module(split, module)]


def pairs(table):
    return list(zip(table["question"], table["answer"]))


@pytest.mark.parametrize("module", MODULES)
def test_pandas_reads_the_problems(folder, text_dir, module):
    for split in splits_of(module):
        path = folder / split / f"{module}.parquet"
        table = pd.read_parquet(path)
        assert pairs(table) == text_problems(text_dir, [split], module)
        assert tuple(table) == parquet.COLUMNS
        constants = table[["module", "split", "source"]].drop_duplicates()
        assert constants.values.tolist() == [[module, split, problem_source(3)]]
        assert pq.read_metadata(path).num_row_groups == -(-len(table) // 77)
    assert not (folder / "extrapolate" / "numbers__is_prime.parquet").exists()


def test_datasets_finds_the_splits(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    datasets = pytest.importorskip("datasets", reason="needs the extra test")

    def load(*name):
        return datasets.load_dataset(str(folder), *name, cache_dir=tmp_path)

    loaded = load()
    assert list(loaded) == list(SPLITS)
    assert {split: len(rows) for split, rows in loaded.items()} == {
        **dict.fromkeys(TRAIN_SPLITS, 600),
        "interpolate": 300,
        "extrapolate": 200,
    }
    assert set(loaded["interpolate"]["module"]) == set(MODULES)
    for module in MODULES:
        loaded = load(module)
        assert list(loaded) == splits_of(module)
        assert set(loaded["interpolate"]["module"]) == {module}


def test_card_has_the_counts(folder):
    card = (folder / "README.md").read_text()
    row = "| numbers__place_value | 200 | 200 | 200 | 100 | 100 | 0 | 0 |"
    assert row in card
    assert "| numbers__is_prime | 200 | 200 | 200 | 100 |  | 0 | 0 |" in card
    assert f"`{problem_source(3)}`" in card
    assert "@inproceedings" in card


def test_duplicates_and_evaluation_questions_are_dropped(texts, tmp_path):
    """Also those of another module's evaluation."""
    ours, theirs = MODULES[:2]
    [(held_out, _), *_] = text_problems(texts, ["extrapolate"], theirs)
    [(doubled, _), *_] = text_problems(texts, ["train_easy"], ours)
    [*_, (of_interpolate, _)] = text_problems(texts, ["interpolate"], ours)
    path = text_path(texts, "train_hard", ours)
    lines = path.read_text().splitlines()
    lines[0:6:2] = [held_out, doubled, of_interpolate]
    path.write_text("\n".join([*lines, *lines[-2:], ""]))
    folder = tmp_path / "parquet"
    counts = write(texts, folder, [ours, theirs])
    assert counts[ours]["train_hard"] == 197
    table = pd.read_parquet(folder / "train_hard" / f"{ours}.parquet")
    rest = text_problems(texts, ["train_hard"], ours)[3:-1]
    assert pairs(table) == rest
    assert set(table["source"]) == {archive.FOLDER}
    row = f"| {ours} | 200 | 200 | 197 | 100 | 100 | 2 | 2 |"
    assert row in (folder / "README.md").read_text()


def test_interrupted_writing_resumes(text_dir, tmp_path, monkeypatch):
    whole, folder = tmp_path / "whole", tmp_path / "interrupted"
    write(text_dir, whole)
    read_problems = archive.read_problems
    with monkeypatch.context() as patch:

        def interrupted(path):
            if path.parts[-2:] == ("train-medium", f"{MODULES[1]}.txt"):
                raise KeyboardInterrupt
            return read_problems(path)

        patch.setattr(archive, "read_problems", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write(text_dir, folder)
    assert not (folder / "README.md").exists()
    # As a killed process leaves it.
    (folder / "train_easy" / "partial-12345678-a.parquet").write_text("")
    done = folder / "train_easy" / f"{MODULES[0]}.parquet"
    written = done.stat().st_mtime_ns
    write(text_dir, folder)
    assert done.stat().st_mtime_ns == written
    assert tree(folder) == tree(whole)
    # All are there.
    monkeypatch.setattr(archive, "read_problems", None)
    assert write(text_dir, folder)[MODULES[0]]["train_easy"] == 200


def test_files_of_others_are_refused(copied, text_dir, texts):
    for arguments in ([text_dir, copied, MODULES[:2]], [texts, copied]):
        with pytest.raises(UsageError) as error:
            write(*arguments)
        assert error.value.field == "modules"
    with (
        folder_lock(copied, "tests"),
        pytest.raises(UsageError) as error,
    ):
        write(text_dir, copied)
    assert error.value.path == str(copied)


def test_damaged_file_is_refused(copied, text_dir):
    path = copied / "interpolate" / f"{MODULES[0]}.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UnreadableFileError) as error:
        write(text_dir, copied)
    assert error.value.path == str(path)
    path.unlink()
    assert write(text_dir, copied)[MODULES[0]]["interpolate"] == 100


def test_older_reports_tell_the_seed(text_dir, tmp_path):
    texts = copy_texts(text_dir, tmp_path)
    report = texts / archive.FOLDER / f"{MODULES[0]}.json"
    written = json.loads(report.read_text())
    assert written.pop("source") == problem_source(3)
    report.write_text(json.dumps(written))
    write(texts, tmp_path / "parquet", MODULES[:1])
    table = pd.read_parquet(tmp_path / "parquet" / "interpolate")
    assert set(table["source"]) == {"seed 3"}
