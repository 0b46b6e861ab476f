"""TensorFlow's own tool reads an export, asks it and finds nothing wrong."""

import re
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.slow


def saved_model_cli(command, version, *arguments):
    """What the tool prints, without what it says of TensorFlow."""
    process = subprocess.run(
        [
            sys.executable,
            # As the script saved_model_cli does, wherever it is installed.
            *("-m", "tensorflow.python.tools.saved_model_cli"),
            command,
            f"--dir={version}",
            *arguments,
        ],
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_show(options_version):
    shown = saved_model_cli("show", options_version, "--all")
    for signature in ("serving_default", "n_best", "token_ids"):
        assert f"signature_def['{signature}']" in shown
    assert shown.count("inputs['questions'] tensor_info:") == 2
    tensors = re.findall(
        r"\['(\w+)'\] tensor_info:\s+dtype: (\w+)\s+shape: (\(.*\))", shown
    )
    for tensor in (
        ("questions", "DT_STRING", "(-1)"),
        ("answers", "DT_STRING", "(-1)"),
        ("status", "DT_STRING", "(-1)"),
        ("log_probs", "DT_FLOAT", "(-1)"),
        ("answers", "DT_STRING", "(-1, 3)"),
        ("scores", "DT_FLOAT", "(-1, 3)"),
        ("encoder_token_ids", "DT_INT32", "(-1, -1)"),
        ("logits", "DT_FLOAT", "(-1, -1, 72)"),
    ):
        assert tensor in tensors


def results(printed):
    """The outputs that the tool prints, as it prints them."""
    parts = re.split(r"Result for output key (\w+):\n", printed)
    return dict(zip(parts[1::2], map(str.strip, parts[2::2])))


def test_run_with_an_expression(version, untrained_model):
    question = "What is the units digit of 23?"
    printed = saved_model_cli(
        "run",
        version,
        "--tag_set=serve",
        "--signature_def=serving_default",
        f"--input_exprs=questions=['{question}', '', '%']",
    )
    outputs = results(printed)
    [answer] = untrained_model.solve([question])
    assert outputs["answers"] == f"[b'{answer}' b'' b'']"
    assert outputs["status"] == "[b'OK' b'EMPTY' b'UNKNOWN_CHARACTER']"
    assert re.fullmatch(r"\[-\d+\.\d*\s+0\.\s+0\.\s*\]", outputs["log_probs"])


def test_run_with_a_file(options_version, options_served, tmp_path):
    questions = ["1", "What is the units digit of 23?"]
    np.savez(tmp_path / "inputs.npz", questions=questions)
    printed = saved_model_cli(
        "run",
        options_version,
        "--tag_set=serve",
        "--signature_def=n_best",
        f"--inputs=questions={tmp_path / 'inputs.npz'}[questions]",
        f"--outdir={tmp_path}",
    )
    assert set(results(printed)) == {
        "answers",
        "log_probs",
        "scores",
        "status",
    }
    expected = options_served("n_best", questions=questions)
    answers = np.load(tmp_path / "answers.npy", allow_pickle=True)
    assert answers.tolist() == expected["answers"].tolist()


def test_scan(options_version):
    """No op that reads or writes files, or prints."""
    printed = saved_model_cli("scan", options_version, "--tag_set=serve")
    assert "does not contain the default denylisted ops" in printed
    assert "contains the following denylisted ops" not in printed
