"""The README's Python, as it stands."""

import pathlib
import re

import numpy as np
import pytest

README = pathlib.Path(__file__).parent.parent / "README.md"
BLOCKS = dict(
    re.findall(
        r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```$",
        README.read_text(),
        re.DOTALL | re.MULTILINE,
    )
)


def run(title):
    """The names that a section's block of code leaves."""
    names = {}
    exec(compile(BLOCKS[title], f"README.md: {title}", "exec"), names)
    return names


def test_every_block_is_tested():
    assert set(BLOCKS) == {
        "Ask the trained solver",
        "TP-Attention in your own model",
    }
    assert len(BLOCKS) == README.read_text().count("```python")


@pytest.mark.slow
def test_the_trained_solver():
    title = "Ask the trained solver"
    beside = re.findall(r'", +# (.*)', BLOCKS[title])
    assert len(beside) == 5
    assert run(title)["answers"] == beside


@pytest.fixture(scope="module")
def own_model():
    return run("TP-Attention in your own model")["model"]


def test_own_model_does_not_see_padding(own_model):
    ids = np.array([[5, 8, 13], [21, 34, 55]])
    expected = own_model.predict(ids, verbose=0)
    padded = np.pad(ids, [(0, 0), (0, 4)])
    np.testing.assert_allclose(
        own_model.predict(padded, verbose=0), expected, atol=1e-6
    )
    # Nor what stands for it: its row of the embedding.
    embedding = own_model.layers[1]
    matrix = embedding.get_weights()[0]
    matrix[0] += 3.0
    embedding.set_weights([matrix])
    np.testing.assert_allclose(
        own_model.predict(padded, verbose=0), expected, atol=1e-6
    )


def test_own_model_learns(own_model):
    ids = np.random.default_rng(5).integers(1, 1000, (32, 6))
    labels = ids[:, 0] % 2
    history = own_model.fit(ids, labels, epochs=3, batch_size=32, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0]
