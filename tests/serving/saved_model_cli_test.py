"""TensorFlow's own tool reads an export, in a process without this project."""

import json
import re
import subprocess
import sys

import pytest

from tests.serving.export_test import QUESTIONS

# One process, because importing TensorFlow takes longest.
SCRIPT = """
import json, sys
import tensorflow as tf
from absl import flags
from tensorflow.python.tools import saved_model_cli

version, questions, commands = json.loads(sys.argv[1])
loaded = tf.saved_model.load(version)
outputs = loaded.signatures["serving_default"](
    questions=tf.constant(questions))
answers = [answer.decode() for answer in outputs["answers"].numpy()]
print(json.dumps(answers))
for arguments in commands:
    print("\\nCOMMAND", flush=True)
    for name in flags.FLAGS:
        flags.FLAGS[name].unparse()
    sys.argv = ["saved_model_cli", *arguments]
    try:
        saved_model_cli.main()
    except SystemExit as exit:
        assert not exit.code, (arguments, exit.code)
assert "tpt_keras" not in sys.modules
"""


@pytest.mark.slow
def test_the_tool_reads_and_runs_an_export(version, tmp_path, model):
    commands = [
        ["show", f"--dir={version}", "--all"],
        ["scan", f"--dir={version}", "--tag_set=serve"],
        [
            "run",
            f"--dir={version}",
            "--tag_set=serve",
            "--signature_def=serving_default",
            "--input_exprs=questions=['1', '', '%']",
        ],
    ]
    process = subprocess.run(
        [
            *(sys.executable, "-c", SCRIPT),
            json.dumps([str(version), QUESTIONS, commands]),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    answers, show, scan, run = process.stdout.split("\nCOMMAND\n")
    assert json.loads(answers) == model.solve(QUESTIONS)
    for signature in ("serving_default", "n_best"):
        assert f"signature_def['{signature}']" in show
    # No op reads or writes files, or prints.
    assert "does not contain the default denylisted ops" in scan
    [answer] = model.solve(["1"])
    assert f"[{answer.encode()!r} b'' b'']" in run
    assert re.search(r"\[b'OK' b'EMPTY' b'UNKNOWN_CHARACTER'\]", run)
