"""Answers of `solve`, from every kind of model."""

import pytest

from tests.experiments.command import assert_error
from tests.experiments.command import assert_refused
from tests.serving.tf_serving import TFServing
from tpt_keras.serving.saved_model import CONFIG_ASSET

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


def test_questions_without_any_answer_print_nothing(run, saved_model):
    questions = {"1" * 161: "160", "5 % 3": "'%'", "two\nlines": r"'\n'"}
    result = run(
        "solve",
        f"--saved_model={saved_model}",
        *(f"--question={question}" for question in questions),
    )
    assert_refused(result, *questions.values())


@pytest.mark.parametrize("protocol", ["grpc", "rest"])
def test_a_server_answers(run, protocol):
    with TFServing().serve(protocol) as address:
        if protocol == "rest":
            address = f"http://{address}"
        server = f"--server={address}"
        result = run("solve", server, "--question=1 + 1", "--question=½")
        assert (result.status, result.stderr) == (0, "")
        assert result.stdout == "1 + 1\n½\n"
        result = run("solve", server, GOOD, "--model_name=another")
        assert_refused(result, "'another'", "--model_name")
    assert_refused(run("solve", server, GOOD), address, "--server")


def test_a_damaged_export_is_refused(run, saved_model, tmp_path):
    for name in ("saved_model.pb", CONFIG_ASSET):
        path = tmp_path / "1" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((saved_model / "1" / name).read_bytes()[:-10])
    result = run("solve", f"--saved_model={tmp_path}", GOOD)
    assert_refused(result, tmp_path, "tpt_keras export")
