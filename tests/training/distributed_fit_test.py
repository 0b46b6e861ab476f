"""What Keras lacks for several workers, and for several devices.

Everything here has a time limit: a worker whose partner is gone waits.
"""

import json

import keras
import numpy as np
import pytest

from tests.training import processes
from tests.training.processes import ForkedProcess

pytestmark = pytest.mark.slow

HEALED = (
    f"Keras {keras.__version__} does not fail here any more: see whether "
    "`DistributedFit` can go."
)


@pytest.fixture(scope="module")
def errors_of_workers(tmp_path_factory):
    """What stock Keras fails with in each of two workers.

    With one worker, which Keras does not count as several, all is well.
    """
    folder = tmp_path_factory.mktemp("workers")
    started = []
    with processes.killed_at_the_end(started):
        for index, environment in enumerate(
            processes.cluster(processes.free_ports(2))
        ):
            started.append(
                ForkedProcess(
                    "tests.training.keras_fit_driver",
                    folder / f"errors_{index}",
                    output=folder / f"output_{index}",
                    environment=environment,
                )
            )
        for process in started:
            assert process.wait() == 0, process.output
    return [
        json.loads((folder / f"errors_{index}").read_text())
        for index in range(2)
    ]


def test_keras_cannot_build_symbolically_under_several_workers(
    errors_of_workers,
):
    """Why `_maybe_symbolic_build` is replaced, first: it fails always."""
    for errors in errors_of_workers:
        assert errors["stock"], HEALED
        assert "Attempt to convert a value (PerReplica" in errors["stock"]


def test_keras_cannot_reduce_the_results_of_several_workers(
    errors_of_workers,
):
    """Why the functions of training and evaluation are replaced, first."""
    for errors in errors_of_workers:
        error = errors["without symbolic build"]
        assert error, HEALED
        assert "Invalid reduction dimension 0" in error


@pytest.fixture(scope="module")
def on_two_devices(tmp_path_factory):
    """What the process of `keras_fit_driver` prints."""
    process = ForkedProcess(
        "tests.training.keras_fit_driver",
        output=tmp_path_factory.mktemp("two") / "output",
    )
    with processes.killed_at_the_end([process]):
        assert process.wait() == 0, process.output
    return json.loads(process.output.splitlines()[-1])


def test_keras_cannot_build_symbolically_from_other_lengths(on_two_devices):
    """Why `_maybe_symbolic_build` is replaced, second."""
    assert on_two_devices["equal lengths"] is None
    error = on_two_devices["other lengths"]
    assert error, HEALED
    assert "must have the same size and shape" in error


def test_keras_cannot_make_several_steps_on_two_devices(on_two_devices):
    """Why the functions of training and evaluation are replaced, second."""
    error = on_two_devices["several steps"]
    assert error, HEALED
    assert "must feed a value for placeholder" in error


def test_keras_cannot_compile_for_two_devices(on_two_devices):
    """Why `jit_compile` is refused there."""
    error = on_two_devices["XLA"]
    assert error, "A training need not refuse jit_compile any more."
    assert "located in device" in error


def test_several_steps_on_two_devices(on_two_devices):
    found = on_two_devices["mended"]
    # From 1 to the part's number, of two parts in every step: as many as
    # there are, more than an execution or less.
    assert found["losses"] == pytest.approx(
        [
            np.mean([(1 - part) ** 2 for part in range(2 * steps)])
            for steps in (1, 2, 3, 4)
        ]
    )
    # A step makes the sum of weight and bias 0.6 times what it was, from 1 on.
    for name, steps in (("three", 3), ("six more", 9), ("one batch", 10)):
        step, weight, bias = found[name]
        assert step == steps
        assert weight + bias == pytest.approx(0.6**steps, rel=1e-4)
