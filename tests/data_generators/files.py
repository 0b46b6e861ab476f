"""What the tests of the datasets share."""

import shutil

from tpt_keras.data_generators import official_text
from tpt_keras.data_generators.prepared_data import problem_sources

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
    """A copy that a test may damage; the folder above the copied one."""
    shutil.copytree(
        text_dir / official_text.FOLDER, folder / official_text.FOLDER
    )
    return folder


def text_path(text_dir, split, module):
    """The file of a module's problems of a split."""
    return official_text.text_path(
        text_dir / official_text.FOLDER, split, module
    )


def text_problems(text_dir, splits, module):
    """All problems of some splits, as pairs of strings."""
    return [
        problem
        for split in splits
        for problem in official_text.read_problems(
            text_path(text_dir, split, module)
        )
    ]


def problem_source(data_dir, module, splits, dataset="mathematics_dataset"):
    """The problems of some splits of a module."""
    return problem_sources(data_dir, [module], splits, dataset)[module]


def as_strings(problems):
    """What a source's `read` returns, as pairs of strings."""
    return [(q.decode(), a.decode()) for q, a in zip(*problems)]
