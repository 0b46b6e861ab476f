"""Asking an exported model, good questions among others and damaged files."""

import shutil

import pytest

from tests.conftest import MODULE
from tests.experiments.command import assert_error
from tests.experiments.command import assert_refused
from tpt_keras.serving.exported_files import CHECKSUMS_ASSET
from tpt_keras.serving.exported_files import CONFIG_ASSET

GOOD = "--question=What is the tens digit of 31859?"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["saved_model", "model_dir"])
def test_good_questions_among_others(
    run, saved_model, trained_model_dir, trained_model, kind
):
    """Of an exported model, and of one that was not."""
    path = {"saved_model": saved_model, "model_dir": trained_model_dir}[kind]
    result = run(
        "solve",
        f"--{kind}={path}",
        "--question=5 % 3",
        GOOD,
        "--question=",
        "--question=1",
        f"--question={'1' * 161}",
        "--question=\udcff",
    )
    assert result.status == 2
    answers = trained_model.solve([GOOD.partition("=")[2], "1"])
    assert result.stdout == f"\n{answers[0]}\n\n{answers[1]}\n\n\n"
    assert_error(result, "4 of 6", "'%'", "'5 % 3'", "'' is empty", "EMPTY")
    for part in ("161 characters; shorten it to 160", "INVALID_UTF8"):
        assert part in result.stderr


@pytest.fixture
def copy(saved_model, tmp_path):
    return shutil.copytree(saved_model, tmp_path / "model")


@pytest.mark.parametrize("name", ["saved_model.pb", CONFIG_ASSET])
def test_a_damaged_model(run, copy, place_value_data, name):
    path = copy / "1" / name
    path.write_bytes(path.read_bytes()[:-10])
    for command, *arguments in (
        ("solve", GOOD),
        ("quiz", f"--modules={MODULE}", f"--data_dir={place_value_data}"),
    ):
        result = run(command, f"--saved_model={copy}", *arguments)
        assert_refused(result, copy, name, "tpt_keras export")


def test_a_damaged_model_without_checksums(run, copy):
    (copy / "1" / CHECKSUMS_ASSET).unlink()
    path = copy / "1" / "saved_model.pb"
    path.write_bytes(path.read_bytes()[:-10])
    result = run("solve", f"--saved_model={copy}", GOOD)
    assert_refused(result, copy, "cannot be loaded", "tpt_keras export")


def test_without_its_configuration(run, copy):
    for name in (CHECKSUMS_ASSET, CONFIG_ASSET):
        (copy / "1" / name).unlink()
    result = run("solve", f"--saved_model={copy}", "--question=5 % 3", GOOD)
    assert result.stdout.startswith("\n")
    assert_error(result, "1 of 2", "'5 % 3' has a character", "vocabulary")
