"""Small generated datasets, made once."""

import pytest

from tests.data_generators.files import MODULES


@pytest.fixture(scope="session")
def text_dir(tmp_path_factory):
    """A folder of `MODULES` in the official layout: 600 and 100 problems."""
    from tpt_keras.data_generators.mathematics.archive import FOLDER
    from tpt_keras.data_generators.mathematics.generator import generate_modules

    folder = tmp_path_factory.mktemp("text")
    generate_modules(
        MODULES,
        folder / FOLDER,
        train_examples=600,
        evaluation_examples=100,
        seed=3,
        num_workers=2,
    )
    return folder


@pytest.fixture(scope="session")
def data_dir(text_dir, tmp_path_factory):
    """A data folder with the datasets of `MODULES`."""
    from tpt_keras.data_generators.mathematics.datasets import prepare_dataset

    folder = tmp_path_factory.mktemp("data")
    for module in MODULES:
        prepare_dataset(module, folder, text_dir)
    return folder
