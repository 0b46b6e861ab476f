import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.conftest import MODULE
from tests.training.first_steps import NUM_STEPS
from tests.training.first_steps import first_steps
from tpt_keras.training.evaluate import evaluate


@pytest.mark.slow
def test_trains_evaluates_and_answers_where_there_is_no_tensorflow(
    place_value_data,
):
    output = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.training.first_steps",
            str(place_value_data),
            MODULE,
        ],
        env={**os.environ, "KERAS_BACKEND": "jax"},
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    on_jax = json.loads(output)
    assert on_jax["backend"] == "jax"
    trainer, steps = first_steps(place_value_data, MODULE)
    assert steps.keys() == on_jax["steps"].keys()
    for name, values in steps.items():
        assert len(values) == NUM_STEPS
        np.testing.assert_allclose(
            on_jax["steps"][name], values, rtol=1e-4, err_msg=name
        )
    assert len(set(steps["loss"])) == NUM_STEPS
    # Far above the norm that it is clipped at.
    assert min(steps["gradient_norm"]) > 0.5
    [evaluation] = evaluate(
        trainer, [MODULE], ["interpolate"], place_value_data, 64
    )
    for name, value in evaluation.items():
        assert on_jax["evaluation"][name] == (
            pytest.approx(value, rel=1e-3) if name == "loss" else value
        )
    assert [on_jax["answer"]] == trainer.transformer.solve(["What is 1 + 1?"])
