import pytest

from tests.data_generators.files import MODULES
from tests.data_generators.files import copy_texts
from tests.data_generators.files import text_path
from tpt_keras.data_generators.local_download_manager import (
    LocalDownloadManager,
)
from tpt_keras.errors import UsageError


@pytest.mark.slow
def test_it_gives_the_folder(text_dir):
    for module in MODULES:
        manager = LocalDownloadManager(text_dir, module)
        assert manager.download_and_extract("https://any.where/a.tar.gz") == (
            str(text_dir)
        )


def test_the_files_are_checked(text_dir, tmp_path):
    folder = copy_texts(text_dir, tmp_path)
    # The stock dataset has no extrapolation, and other modules do not matter.
    text_path(folder, "extrapolate", MODULES[0]).unlink()
    text_path(folder, "interpolate", MODULES[1]).unlink()
    LocalDownloadManager(folder, MODULES[0])
    for split in ("train_easy", "train_medium", "train_hard", "interpolate"):
        path = text_path(folder, split, MODULES[0])
        whole = path.read_bytes()
        path.write_bytes(whole + b"What is 1 + 1?\n")
        with pytest.raises(UsageError, match=f"{path} is cut off"):
            LocalDownloadManager(folder, MODULES[0])
        path.write_bytes(whole)
