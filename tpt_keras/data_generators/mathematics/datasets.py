"""Makes and reads the prepared datasets of TensorFlow Datasets."""

import contextlib
import io
import json
import logging
import pathlib
import shutil

import tensorflow_datasets as tfds

from tpt_keras.data_generators.mathematics import archive
from tpt_keras.errors import check_choice
from tpt_keras.files import folder_lock
from tpt_keras.files import reading
from tpt_keras.files import refuse_pattern

_READ_AT_ONCE = 8192
_CITATION = """
@inproceedings{saxton2019analysing,
  title={Analysing Mathematical Reasoning Abilities of Neural Models},
  author={Saxton, David and Grefenstette, Edward and Hill, Felix and
          Kohli, Pushmeet},
  booktitle={International Conference on Learning Representations},
  year={2019}
}
"""

logger = logging.getLogger(__name__)


class MathematicsDataset(tfds.core.GeneratorBasedBuilder):
    """DeepMind's Mathematics Dataset with all of its splits.

    Unlike the stock `math_dataset`, it keeps the difficulties apart and has the
    extrapolation problems. It has a configuration for each of the 56 modules,
    with the splits train_easy, train_medium, train_hard, interpolate and, for
    some modules, extrapolate. A prepared dataset is read by plain
    `tfds.load("mathematics_dataset/numbers__place_value", data_dir=...)`.

    It is made from released or generated files in the official layout:
    `download_and_prepare(download_config=tfds.download.DownloadConfig(
    manual_dir=FOLDER_ABOVE_mathematics_dataset-v1.0))`.
    """

    VERSION = tfds.core.Version(archive.DATASET_VERSION)
    RELEASE_NOTES = {
        archive.DATASET_VERSION: "All five splits of every module."
    }
    MANUAL_DOWNLOAD_INSTRUCTIONS = (
        "Put the unpacked folder mathematics_dataset-v1.0 into manual_dir, or "
        "prepare the data with the command prepare_data."
    )
    BUILDER_CONFIGS = [
        tfds.core.BuilderConfig(name=module) for module in archive.MODULES
    ]

    def _info(self):
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "question": tfds.features.Text(),
                    "answer": tfds.features.Text(),
                }
            ),
            supervised_keys=("question", "answer"),
            homepage="https://github.com/google-deepmind/mathematics_dataset",
            citation=_CITATION,
            metadata=tfds.core.MetadataDict(),
            # The input pipeline shuffles over the whole dataset.
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager):
        root = pathlib.Path(dl_manager.manual_dir) / archive.FOLDER
        splits, origin = archive.read_module(root, self.builder_config.name)
        self.info.metadata.update(origin)
        return {
            split: self._generate_examples(problems)
            for split, problems in splits.items()
        }

    def _generate_examples(self, problems):
        for index, (question, answer) in enumerate(problems):
            yield index, {"question": question, "answer": answer}


def dataset_builder(module, data_dir, dataset="mathematics_dataset"):
    """The builder of a module's dataset, prepared or not."""
    check_choice("module", module, archive.MODULES)
    check_choice("dataset", dataset, archive.DATASETS)
    refuse_pattern(data_dir, "data_dir")
    folder = pathlib.Path(data_dir) / dataset / module
    info = next(folder.glob("[0-9]*/dataset_info.json"), None)
    if info is None:
        return _builder(module, data_dir, dataset)
    with _reading_dataset(info.parent):
        # tfds reads one of them at once and the others at some time.
        for path in info.parent.glob("*.json"):
            json.loads(path.read_bytes())
        return _builder(module, data_dir, dataset)


def _builder(module, data_dir, dataset):
    if dataset == "math_dataset":
        return tfds.builder(f"math_dataset/{module}", data_dir=data_dir)
    return MathematicsDataset(config=module, data_dir=data_dir)


def _reading_dataset(folder):
    return reading(folder, "Remove the folder and prepare the dataset again.")


def read_prepared(module, data_dir, dataset):
    """Reads a prepared dataset, as `open_cache` needs it."""
    builder = dataset_builder(module, data_dir, dataset)
    with _reading_dataset(builder.data_path):
        if not builder.is_prepared():
            raise ValueError("it is not complete")
    splits = {name: _read_split(builder, name) for name in builder.info.splits}
    return archive.joined_splits(splits, dataset), dict(
        builder.info.metadata or {}
    )


def _read_split(builder, name):
    count = 0
    # TensorFlow verifies the checksum of every record.
    with _reading_dataset(builder.data_path):
        batches = builder.as_dataset(
            split=name,
            batch_size=_READ_AT_ONCE,
            read_config=tfds.ReadConfig(
                interleave_cycle_length=1, try_autocache=False
            ),
        )
        for batch in batches.as_numpy_iterator():
            for pair in zip(batch["question"], batch["answer"]):
                count += 1
                yield tuple(text.decode("utf-8", "replace") for text in pair)
        expected = builder.info.splits[name].num_examples
        if count != expected:
            raise ValueError(
                f"{count} problems of {name}, but {expected} in its description"
            )


def prepare_dataset(module, data_dir, text_dir, dataset="mathematics_dataset"):
    """Makes a module's dataset from files in the official layout.

    `text_dir` is the folder that holds `mathematics_dataset-v1.0`.
    """
    folder = dataset_builder(module, data_dir, dataset).data_path.parent
    with folder_lock(folder, "prepares a dataset"):
        # Another process may have prepared it just now.
        builder = dataset_builder(module, data_dir, dataset)
        if not builder.is_prepared():
            _prepare(builder, text_dir)
    return builder


def _prepare(builder, text_dir):
    is_stock = builder.name == "math_dataset"
    root = pathlib.Path(text_dir) / archive.FOLDER
    paths = archive.text_paths(root, builder.builder_config.name)
    if is_stock:
        paths.pop("extrapolate", None)
    # Now, because tfds would add words of its own to an error.
    for path in paths.values():
        for _ in archive.read_problems(path):
            pass
    # tfds takes any folder for a prepared one, and leaves others when killed.
    incomplete = builder.data_path.parent.glob("incomplete.*")
    for left in (*incomplete, builder.data_path):
        shutil.rmtree(left, ignore_errors=True)
    logger.info("Writing the dataset %s.", builder.data_path)
    if is_stock:
        builder._make_download_manager = lambda **_: _LocalFiles(text_dir)
    # tfds prints that it downloads a dataset of unknown size.
    with contextlib.redirect_stdout(io.StringIO()):
        builder.download_and_prepare(
            download_config=tfds.download.DownloadConfig(manual_dir=text_dir)
        )


class _LocalFiles(tfds.download.DownloadManager):
    """Gives the stock builder an archive that is already unpacked."""

    def __init__(self, text_dir):
        super().__init__(download_dir=str(text_dir))
        self._text_dir = str(text_dir)

    def download_and_extract(self, url_or_urls):
        return self._text_dir
