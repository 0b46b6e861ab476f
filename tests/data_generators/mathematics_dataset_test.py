import json
import os
import pathlib
import subprocess
import sys

import pytest
import tensorflow_datasets as tfds

from tests.data_generators.files import MODULES
from tests.data_generators.files import text_problems
from tests.data_generators.files import tree
from tpt_keras.data_generators import official_text
from tpt_keras.data_generators.mathematics_dataset import MathematicsDataset
from tpt_keras.data_generators.mathematics_modules import MODULES as ALL
from tpt_keras.data_generators.mathematics_modules import SPLITS
from tpt_keras.data_generators.problem_generation import report_path

LOAD = """
import json, sys
import tensorflow_datasets as tfds

data_dir, *names = sys.argv[1:]
loaded = {}
for name in names:
    splits, info = tfds.load(name, data_dir=data_dir, with_info=True)
    loaded[name] = {
        "metadata": info.metadata,
        "splits": {
            split: [
                (example["question"].decode(), example["answer"].decode())
                for example in tfds.as_numpy(dataset)
            ]
            for split, dataset in splits.items()
        },
    }
assert not any(name.startswith("tpt_keras") for name in sys.modules)
print(json.dumps(loaded))
"""


@pytest.mark.slow
def test_plain_tfds_reads_it(data_dir, text_dir, tmp_path):
    names = [f"mathematics_dataset/{module}" for module in MODULES]
    process = subprocess.run(
        [sys.executable, "-c", LOAD, data_dir, *names],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    loaded = json.loads(process.stdout)
    assert list(loaded) == names
    for module, dataset in zip(MODULES, loaded.values()):
        splits = dataset["splits"]
        expected = {s for s in SPLITS if official_text.split_module(s, module)}
        assert set(splits) == expected
        for split, problems in splits.items():
            assert [tuple(problem) for problem in problems] == text_problems(
                text_dir, [split], module
            )
        # What was asked for and what was dropped comes with the dataset.
        report = json.loads(
            report_path(text_dir / official_text.FOLDER, module).read_text()
        )
        assert dataset["metadata"] == {"generated": report}
        assert set(report["dropped"]) == {"duplicates", "also_in_evaluation"}


def test_as_its_documentation_says(text_dir, tmp_path):
    builder = MathematicsDataset(config=MODULES[1], data_dir=tmp_path)
    assert not builder.is_prepared()
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(manual_dir=text_dir)
    )
    assert builder.info.splits["extrapolate"].num_examples == 100
    assert builder.info.supervised_keys == ("question", "answer")
    assert set(MathematicsDataset.builder_configs) == set(ALL)


def test_it_is_the_same_every_time(text_dir, data_dir, tmp_path):
    builder = MathematicsDataset(config=MODULES[0], data_dir=tmp_path)
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(manual_dir=text_dir)
    )
    ours = tree(pathlib.Path(builder.data_path))
    theirs = tree(data_dir / builder.data_path.relative_to(tmp_path))
    assert len(ours) > 5
    for path, content in ours.items():
        if "tfrecord" in path:
            assert content == theirs[path]
