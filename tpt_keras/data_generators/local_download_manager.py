import os

import tensorflow_datasets as tfds

from tpt_keras.data_generators import official_text
from tpt_keras.data_generators.mathematics_modules import TRAIN_SPLITS


class LocalDownloadManager(tfds.download.DownloadManager):
    """Gives the stock `math_dataset` the archive that is there already.

    Its files are checked before, for the stock builder would fail on a damaged
    one without a word on which.

    Args:
        text_dir: Folder that holds `mathematics_dataset-v1.0`.
        module: Name of the training module that is to be made.
    """

    def __init__(self, text_dir, module):
        super().__init__(download_dir=os.fspath(text_dir))
        self._text_dir = os.fspath(text_dir)
        root = os.path.join(self._text_dir, official_text.FOLDER)
        for split in (*TRAIN_SPLITS, "interpolate"):
            path = official_text.text_path(root, split, module)
            for _ in official_text.read_problems(path):
                pass

    def download_and_extract(self, url_or_urls):
        return self._text_dir
