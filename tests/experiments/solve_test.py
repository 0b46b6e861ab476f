"""Answers of `solve`, and damaged exports."""

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
def test_unreadable_questions_are_left_out_and_named(
    run, saved_model, trained_model_dir, trained_model, kind
):
    path = {"saved_model": saved_model, "model_dir": trained_model_dir}[kind]
    result = run(
        "solve",
        f"--{kind}={path}",
        "--question=5 % 3",
        GOOD,
        "--question=",
        "--question=1",
        "--question=\udcff",
    )
    assert result.status == 2
    answers = trained_model.solve([GOOD.partition("=")[2], "1"])
    assert result.stdout == f"\n{answers[0]}\n\n{answers[1]}\n\n"
    assert_error(result, "'%'", "'5 % 3'", "EMPTY", "INVALID_UTF8")


@pytest.fixture
def copy(saved_model, tmp_path):
    return shutil.copytree(saved_model, tmp_path / "model")


@pytest.mark.parametrize(
    ("damaged", "removed"),
    [
        ("saved_model.pb", []),
        (CONFIG_ASSET, []),
        ("saved_model.pb", [CHECKSUMS_ASSET]),
    ],
)
def test_damaged_export_is_refused(
    run, copy, place_value_data, damaged, removed
):
    path = copy / "1" / damaged
    path.write_bytes(path.read_bytes()[:-10])
    for name in removed:
        (copy / "1" / name).unlink()
    for command, *arguments in (
        ("solve", GOOD),
        ("quiz", f"--modules={MODULE}", f"--data_dir={place_value_data}"),
    ):
        result = run(command, f"--saved_model={copy}", *arguments)
        assert_refused(result, copy, "tpt_keras export")


def test_export_without_its_configuration_answers(run, copy):
    for name in (CHECKSUMS_ASSET, CONFIG_ASSET):
        (copy / "1" / name).unlink()
    result = run("solve", f"--saved_model={copy}", "--question=5 % 3", GOOD)
    assert result.stdout.startswith("\n")
    assert_error(result, "'5 % 3'")
