"""TensorFlow alone reads an export, asks it and finds nothing wrong.

Its own tool does, and its loader, in a process without this project.
"""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from tests.serving.export.export_test import QUESTIONS

pytestmark = pytest.mark.slow

QUESTION = "What is the units digit of 23?"
N_BEST_QUESTIONS = ["1", QUESTION]

# Importing TensorFlow takes longer than any of the commands.
SCRIPT = """
import json, pathlib, sys
import tensorflow as tf
from absl import flags
from tensorflow.python.tools import saved_model_cli

version, questions, commands = json.loads(sys.argv[1])
loaded = tf.saved_model.load(version)
outputs = loaded.signatures["serving_default"](
    questions=tf.constant(questions))
assert "tpt_keras" not in sys.modules
answers = [answer.decode() for answer in outputs["answers"].numpy()]
pathlib.Path("loaded.json").write_text(json.dumps(answers))

for arguments in commands:
    for name in flags.FLAGS:
        flags.FLAGS[name].unparse()
    sys.argv = ["saved_model_cli", *arguments]
    try:
        saved_model_cli.main()
    except SystemExit as exit:
        assert not exit.code, (arguments, exit.code)
    print(f"\\nEND OF {arguments[0]}", flush=True)
assert "tpt_keras" not in sys.modules
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("saved_model_cli")


@pytest.fixture(scope="module")
def printed(version, options_version, folder):
    """What the tool's commands print, without what it says of TensorFlow."""
    np.savez(folder / "inputs.npz", questions=N_BEST_QUESTIONS)
    commands = {
        "show": ["show", f"--dir={options_version}", "--all"],
        "scan": ["scan", f"--dir={options_version}", "--tag_set=serve"],
        "run with an expression": [
            "run",
            f"--dir={version}",
            "--tag_set=serve",
            "--signature_def=serving_default",
            f"--input_exprs=questions=['{QUESTION}', '', '%']",
        ],
        "run with a file": [
            "run",
            f"--dir={options_version}",
            "--tag_set=serve",
            "--signature_def=n_best",
            f"--inputs=questions={folder / 'inputs.npz'}[questions]",
            f"--outdir={folder}",
        ],
    }
    process = subprocess.run(
        [
            sys.executable,
            "-c",
            SCRIPT,
            json.dumps([str(version), QUESTIONS, list(commands.values())]),
        ],
        # Where this project could not be imported by accident.
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    parts = re.split(r"\nEND OF \w+\n", process.stdout)
    return dict(zip(commands, parts))


def test_needs_tensorflow_alone(printed, untrained_model, folder):
    answers = json.loads((folder / "loaded.json").read_text())
    assert answers == untrained_model.solve(QUESTIONS)


def test_show(printed):
    shown = printed["show"]
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


def test_run_with_an_expression(printed, untrained_model):
    outputs = results(printed["run with an expression"])
    [answer] = untrained_model.solve([QUESTION])
    assert outputs["answers"] == f"[b'{answer}' b'' b'']"
    assert outputs["status"] == "[b'OK' b'EMPTY' b'UNKNOWN_CHARACTER']"
    assert re.fullmatch(r"\[-\d+\.\d*\s+0\.\s+0\.\s*\]", outputs["log_probs"])


def test_run_with_a_file(printed, options_served, folder):
    assert set(results(printed["run with a file"])) == {
        "answers",
        "log_probs",
        "scores",
        "status",
    }
    expected = options_served("n_best", questions=N_BEST_QUESTIONS)
    answers = np.load(folder / "answers.npy", allow_pickle=True)
    assert answers.tolist() == expected["answers"].tolist()


def test_scan(printed):
    """No op that reads or writes files, or prints."""
    scanned = printed["scan"]
    assert "does not contain the default denylisted ops" in scanned
    assert "contains the following denylisted ops" not in scanned
