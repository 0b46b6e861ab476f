"""Answers of `solve`, from every kind of model."""

import shutil

import pytest

from tests.conftest import MODULE
from tests.experiments.command import assert_error
from tests.experiments.command import assert_refused
from tests.experiments.command import run_python
from tests.experiments.command import without
from tests.serving.tf_serving import TFServing

GOOD = "--question=What is the tens digit of 31859?"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["saved_model", "model"])
def test_unreadable_questions_are_left_out_and_named(
    run, saved_model, trained_model_dir, trained_model, kind
):
    path = {"saved_model": saved_model, "model": trained_model_dir}[kind]
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


@pytest.mark.slow
def test_commands_take_a_models_file(
    run, trained_model_dir, place_value_data, tmp_path
):
    """It lies alone, as `model.save` leaves it."""
    path = tmp_path / "fitted.keras"
    shutil.copy(trained_model_dir / "model.keras", path)
    data = (
        "--dataset=mathematics_dataset",
        f"--data_dir={place_value_data}",
        f"--modules={MODULE}",
    )
    page = f"--output={tmp_path / 'report.md'}"
    for name, flag, *arguments in (
        ("solve", "model", GOOD),
        ("quiz", "model", "--count=2", *data),
        ("evaluate", "model", *data),
        ("export", "model", f"--export_dir={tmp_path / 'exports'}"),
        ("compress", "model", f"--compressed_dir={tmp_path / 'small'}"),
        ("attention", "model", GOOD, f"--output_dir={tmp_path / 'a'}"),
        ("report", "models", "--examples=2", page, *data),
    ):
        result = run(name, f"--{flag}={path}", *arguments)
        assert result.status == 0, (name, result.stderr)
    assert run("solve", f"--model={tmp_path / 'small'}", GOOD).status == 0


def test_questions_without_any_answer_print_nothing(run, saved_model):
    questions = {"1" * 161: "160", "5 % 3": "'%'", "two\nlines": r"'\n'"}
    result = run(
        "solve",
        f"--saved_model={saved_model}",
        *(f"--question={question}" for question in questions),
    )
    assert_refused(result, *questions.values())


def test_a_server_answers(run):
    with TFServing().serve() as address:
        server = f"--server={address}"
        result = run(
            "solve", server, "--question=1 + 1", "--question=½"
        ).quiet()
        assert result.stdout == "1 + 1\n½\n"
        result = run("solve", server, GOOD, "--model_name=another")
        assert_refused(result, "'another'", "--model_name")
    assert_refused(run("solve", server, GOOD), address, "--server")


@pytest.mark.slow
def test_a_server_is_asked_without_keras(tmp_path):
    """Every line, with an empty one, and a file as Windows writes it."""
    path = tmp_path / "questions.txt"
    path.write_bytes(b"\xef\xbb\xbf1 + 1\r\n\xc2\xbd\r\n")
    with TFServing().serve() as address:
        for arguments, text, answers in (
            ([], "1 + 1\n2\u2028\n\n3", "1 + 1\n2\u2028\n\n3\n"),
            ([f"--questions_file={path}"], "2", "1 + 1\n½\n"),
        ):
            result = run_python(
                *("-m", "experiments", "solve", f"--server=http://{address}"),
                *arguments,
                stdin=text,
                env=without(tmp_path, "keras", "tensorflow"),
            )
            assert result.stdout == answers, result.stderr


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "--questions_file"),
        ([GOOD, "--questions_file=x"], "--questions_file"),
        (["--questions_file=nothing"], "'nothing'. Name"),
    ],
)
def test_questions_come_from_one_place(tmp_path, arguments, part):
    result = run_python(
        *("-m", "experiments", "solve", "--server=http://x", *arguments),
        env=without(tmp_path, "keras", "tensorflow"),
    )
    assert_refused(result, part)
