"""The prepared datasets of TensorFlow Datasets: made once and read once."""

import contextlib
import errno
import io
import json
import logging
import os
import pathlib
import shutil

import tensorflow_datasets as tfds

from tpt_keras.data_generators.mathematics import archive
from tpt_keras.data_generators.mathematics.generator import report_path
from tpt_keras.data_generators.mathematics.modules import EVALUATION_SPLITS
from tpt_keras.data_generators.mathematics.modules import MODULES
from tpt_keras.data_generators.mathematics.modules import SPLITS
from tpt_keras.data_generators.mathematics.modules import TRAIN_SPLITS
from tpt_keras.data_generators.mathematics.task import DATASETS
from tpt_keras.data_generators.mathematics.task import making
from tpt_keras.data_generators.mathematics.task import open_module
from tpt_keras.errors import UsageError
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

    Args:
        with_beam: Whether to write with Apache Beam, which needs `beam_options`
            in the download configuration.
        **kwargs: The base builder's arguments.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "All five splits of every module."}
    MANUAL_DOWNLOAD_INSTRUCTIONS = (
        "Put the unpacked folder mathematics_dataset-v1.0 into manual_dir, or "
        "prepare the data with the command prepare_data."
    )
    BUILDER_CONFIGS = [
        tfds.core.BuilderConfig(name=module) for module in MODULES
    ]

    def __init__(self, with_beam=False, **kwargs):
        self._with_beam = with_beam
        super().__init__(**kwargs)

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
        module = self.builder_config.name
        report = report_path(root, module)
        if report.exists():
            advice = "Remove it, and its module is generated again."
            with reading(report, advice, ("prepare_data", {})):
                generated = json.loads(report.read_bytes())
            self.info.metadata["generated"] = generated
        paths = {
            split: archive.text_path(root, split, module) for split in SPLITS
        }
        # The generator keeps evaluation problems apart. The release does not
        # quite.
        evaluation = frozenset() if report.exists() else _evaluation(paths)
        if evaluation:
            self.info.metadata["also_in_evaluation"] = sum(
                question in evaluation
                for split in TRAIN_SPLITS
                for question, _ in archive.read_problems(paths[split])
            )
        return {
            split: self._generate_examples(
                path, evaluation if split in TRAIN_SPLITS else frozenset()
            )
            for split, path in paths.items()
            if path is not None
        }

    def _generate_examples(self, path, excluded):
        if self._with_beam:
            beam = tfds.core.lazy_imports.apache_beam
            return beam.Create([str(path)]) | beam.FlatMap(
                _keyed_examples, excluded
            )
        return _keyed_examples(path, excluded)


def _evaluation(paths):
    """The questions of the evaluation splits."""
    return frozenset(
        question
        for split in EVALUATION_SPLITS
        if paths[split] is not None
        for question, _ in archive.read_problems(paths[split])
    )


def _keyed_examples(path, excluded):
    problems = (
        (question, answer)
        for question, answer in archive.read_problems(pathlib.Path(path))
        if question not in excluded
    )
    for index, (question, answer) in enumerate(problems):
        yield index, {"question": question, "answer": answer}


class LocalDownloadManager(tfds.download.DownloadManager):
    """Gives the stock `math_dataset` an archive that is already there.

    It checks the files first, because the stock builder does not name a
    damaged one.

    Args:
        text_dir: Folder that holds `mathematics_dataset-v1.0`.
        module: Name of the training module.
    """

    def __init__(self, text_dir, module):
        super().__init__(download_dir=os.fspath(text_dir))
        self._text_dir = os.fspath(text_dir)
        root = os.path.join(self._text_dir, archive.FOLDER)
        for split in (*TRAIN_SPLITS, "interpolate"):
            path = archive.text_path(root, split, module)
            for _ in archive.read_problems(path):
                pass

    def download_and_extract(self, url_or_urls):
        return self._text_dir


def dataset_builder(
    module, data_dir, dataset="mathematics_dataset", with_beam=False
):
    """The builder of a module's dataset, prepared or not.

    Args:
        module: Name of a training module.
        data_dir: The data folder.
        dataset: `"mathematics_dataset"`, ours, or `"math_dataset"`, the stock
            one.
        with_beam: Whether ours is to be written with Apache Beam.

    Returns:
        A builder of TensorFlow Datasets.

    Raises:
        UsageError: If a name is unknown, the folder's name is a pattern, or
            the description of the prepared dataset is damaged.
    """
    check_choice("module", module, MODULES)
    check_choice("dataset", dataset, DATASETS)
    refuse_pattern(data_dir, "data_dir")
    folder = pathlib.Path(data_dir) / dataset / module
    info = next(folder.glob("*/dataset_info.json"), None)
    if info is None:
        return _builder(module, data_dir, dataset, with_beam)
    remedy = making([module], data_dir, dataset)
    advice = f"Remove the folder {info.parent} and prepare the dataset again."
    with reading(info.parent, advice, remedy):
        # tfds reads one of them at once and the others at some time.
        for path in info.parent.glob("*.json"):
            json.loads(path.read_bytes())
        return _builder(module, data_dir, dataset, with_beam)


def _builder(module, data_dir, dataset, with_beam):
    if dataset == "math_dataset":
        return tfds.builder(f"math_dataset/{module}", data_dir=data_dir)
    return MathematicsDataset(
        config=module, data_dir=data_dir, with_beam=with_beam
    )


def read_prepared(module, data_dir, dataset):
    """Reads a prepared dataset once, in order.

    Returns:
        Dict of the splits' names to generators of pairs of strings. They raise
        a `UsageError` if the dataset is damaged.
    """
    builder = dataset_builder(module, data_dir, dataset)
    remedy = making([module], data_dir, dataset)
    return {
        split: _read_split(builder, name, remedy)
        for split, name in DATASETS[dataset].items()
        if name in builder.info.splits
    }


def _read_split(builder, name, remedy):
    advice = "Remove the folder and prepare the dataset again."
    expected = builder.info.splits[name].num_examples
    count = 0
    with reading(builder.data_path, advice, remedy):
        # TensorFlow verifies the checksum of every record.
        batches = builder.as_dataset(
            split=name,
            batch_size=_READ_AT_ONCE,
            read_config=tfds.ReadConfig(
                interleave_cycle_length=1, try_autocache=False
            ),
        ).as_numpy_iterator()
    while True:
        with reading(builder.data_path, advice, remedy):
            batch = next(batches, None)
            if batch is None:
                break
            count += len(batch["question"])
            pairs = [
                tuple(text.decode("utf-8", "replace") for text in pair)
                for pair in zip(batch["question"], batch["answer"])
            ]
        yield from pairs
    if count != expected:
        raise UsageError(
            f"The dataset in {builder.data_path} holds {count} problems of "
            f"{name}, but its dataset_info.json says {expected}. {advice}",
            path=builder.data_path,
            remedy=remedy,
        )


def prepare_dataset(
    module,
    data_dir,
    text_dir,
    dataset="mathematics_dataset",
    beam_options=None,
):
    """Makes a module's dataset from files in the official layout.

    Args:
        module: Name of a training module.
        data_dir: The data folder.
        text_dir: Folder that holds `mathematics_dataset-v1.0`.
        dataset: A name of `DATASETS`.
        beam_options: Apache Beam's pipeline options, to write with Beam.

    Returns:
        The builder, prepared.

    Raises:
        UsageError: If a name is unknown, a file is missing or damaged, or
            another process prepares the dataset.
    """
    described = (module, data_dir, dataset, beam_options is not None)
    folder = dataset_builder(*described).data_path.parent
    with folder_lock(folder, "prepares a dataset"):
        # Another process may have prepared it just now.
        builder = dataset_builder(*described)
        _prepare(builder, text_dir, beam_options)
    # Makes the token cache now rather than when training starts.
    open_module(module, data_dir, dataset)
    return builder


def _prepare(builder, text_dir, beam_options):
    if builder.is_prepared():
        return
    # tfds takes any folder for a prepared one.
    shutil.rmtree(builder.data_path, ignore_errors=True)
    logger.info("Writing the dataset %s.", builder.data_path)
    config = tfds.download.DownloadConfig(
        manual_dir=text_dir, beam_options=beam_options
    )
    if builder.name == "math_dataset":
        # Its own code, but with the archive that is already there.
        builder._make_download_manager = lambda **_: LocalDownloadManager(
            text_dir, builder.builder_config.name
        )
    try:
        # tfds prints that it downloads a dataset of unknown size.
        with contextlib.redirect_stdout(io.StringIO()):
            builder.download_and_prepare(download_config=config)
    except Exception as error:
        _raise_cause(error)
        raise


def _raise_cause(error):
    """Raises the cause of an error if it is one that the user can mend."""
    import tensorflow as tf

    while error is not None:
        if isinstance(error, UsageError) or getattr(error, "errno", None):
            raise error from None
        if isinstance(error, tf.errors.ResourceExhaustedError):
            raise OSError(errno.ENOSPC, error.message) from None
        error = error.__cause__ or error.__context__
