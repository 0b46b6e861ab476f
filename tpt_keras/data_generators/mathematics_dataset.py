import json
import pathlib

import tensorflow_datasets as tfds

from tpt_keras.data_generators import official_text
from tpt_keras.data_generators.mathematics_modules import EVALUATION_SPLITS
from tpt_keras.data_generators.mathematics_modules import MODULES
from tpt_keras.data_generators.mathematics_modules import SPLITS
from tpt_keras.data_generators.mathematics_modules import TRAIN_SPLITS
from tpt_keras.data_generators.problem_generation import report_path
from tpt_keras.errors import UsageError
from tpt_keras.errors import command

_CITATION = """
@inproceedings{saxton2019analysing,
  title={Analysing Mathematical Reasoning Abilities of Neural Models},
  author={Saxton, David and Grefenstette, Edward and Hill, Felix and
          Kohli, Pushmeet},
  booktitle={International Conference on Learning Representations},
  year={2019}
}
"""


class MathematicsDataset(tfds.core.GeneratorBasedBuilder):
    """DeepMind's Mathematics Dataset with all of its splits.

    Unlike the stock `math_dataset` it keeps the difficulties apart and has the
    extrapolation problems: a configuration for each of the 56 modules, with
    the splits train_easy, train_medium, train_hard, interpolate and, where the
    module has one, extrapolate. Once prepared, plain
    `tfds.load("mathematics_dataset/numbers__place_value", data_dir=...)` reads
    it.

    Made from files in the official layout, released or generated:
    `download_and_prepare(download_config=tfds.download.DownloadConfig(
    manual_dir=FOLDER_ABOVE_mathematics_dataset-v1.0))`.

    Args:
        with_beam: Whether to write with Apache Beam, for which the download
            configuration then needs `beam_options`.
        **kwargs: The base builder's arguments.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "All five splits of every module."}
    MANUAL_DOWNLOAD_INSTRUCTIONS = (
        "Put the unpacked folder mathematics_dataset-v1.0 into manual_dir, or "
        f"run {command('prepare_data')}."
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
        root = pathlib.Path(dl_manager.manual_dir) / official_text.FOLDER
        report = report_path(root, self.builder_config.name)
        if report.exists():
            self.info.metadata["generated"] = _read_report(report)
        paths = {
            split: official_text.text_path(
                root, split, self.builder_config.name
            )
            for split in SPLITS
        }
        # What was generated is apart already; the release is not quite.
        evaluation = frozenset() if report.exists() else _evaluation(paths)
        if evaluation:
            self.info.metadata["also_in_evaluation"] = sum(
                question in evaluation
                for split in TRAIN_SPLITS
                for question, _ in official_text.read_problems(paths[split])
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


def _read_report(path):
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise UsageError(
            f"The file {path} is damaged. Remove it: {command('prepare_data')} "
            "then generates its module again."
        ) from error


def _evaluation(paths):
    """The questions of the evaluation splits."""
    return frozenset(
        question
        for split in EVALUATION_SPLITS
        if paths[split] is not None
        for question, _ in official_text.read_problems(paths[split])
    )


def _keyed_examples(path, excluded):
    problems = (
        (question, answer)
        for question, answer in official_text.read_problems(pathlib.Path(path))
        if question not in excluded
    )
    for index, (question, answer) in enumerate(problems):
        yield index, {"question": question, "answer": answer}
