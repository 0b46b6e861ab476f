"""Helpers of the tests of datasets."""

import shutil

import numpy as np

from tpt_keras.data_generators.examples import ArrayExamples
from tpt_keras.data_generators.mathematics import archive
from tpt_keras.tokenizers.character_tokenizer import MATHEMATICS_VOCABULARY

# One with an extrapolation module of another name, one with one of its own
# name, one without.
MODULES = (
    "numbers__place_value",
    "measurement__conversion",
    "numbers__is_prime",
)


def tree(root):
    """The bytes of every file below a folder, by relative path."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def copy_texts(text_dir, folder):
    """Copies the text files; returns the folder above the copied one."""
    shutil.copytree(text_dir / archive.FOLDER, folder / archive.FOLDER)
    return folder


def text_path(text_dir, split, module):
    """The file of a module's problems of a split."""
    return archive.text_path(text_dir / archive.FOLDER, split, module)


def text_problems(text_dir, splits, module):
    """All problems of some splits, as pairs of strings."""
    return [
        problem
        for split in splits
        for problem in archive.read_problems(text_path(text_dir, split, module))
    ]


def examples_of(pairs, vocabulary=MATHEMATICS_VOCABULARY):
    """Examples in memory."""
    return ArrayExamples.from_texts(list(pairs), vocabulary)


def numbered_examples(count, name="a", max_length=40):
    """Different examples of many lengths."""
    rng = np.random.default_rng(len(name) + count)
    return examples_of(
        (f"{name}{index} {'x' * length}", f"{'1' * (1 + length % 7)}{index}")
        for index, length in enumerate(rng.integers(0, max_length, count))
    )


def all_texts(examples):
    """All examples as pairs of strings."""
    return examples.texts(np.arange(len(examples)))
