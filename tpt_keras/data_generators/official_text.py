"""The official layout of the Mathematics Dataset: two lines of text a problem.

    mathematics_dataset-v1.0/train-easy/numbers__place_value.txt
    mathematics_dataset-v1.0/interpolate/...
    mathematics_dataset-v1.0/extrapolate/numbers__place_value_big.txt

Question and answer alternate. An extrapolation module has a name of its own.
"""

import pathlib

from tpt_keras.data_generators.mathematics_modules import EXTRAPOLATION_MODULES
from tpt_keras.errors import UsageError
from tpt_keras.files import whole_file
from tpt_keras.tokenizers.vocabulary import CHARACTERS

FOLDER = "mathematics_dataset-v1.0"
_EXTRAPOLATION_OF = {
    training: extra for extra, training in EXTRAPOLATION_MODULES.items()
}


def split_module(split, module):
    """Name of the module that holds a training module's problems of a split.

    Args:
        split: One of `mathematics_modules.SPLITS`.
        module: Name of a training module.

    Returns:
        The name, or None where the module has no such split: most have no
        extrapolation.
    """
    return _EXTRAPOLATION_OF.get(module) if split == "extrapolate" else module


def text_path(root, split, module):
    """File of a training module's problems of a split, or None.

    Args:
        root: The folder `mathematics_dataset-v1.0`.
        split: One of `mathematics_modules.SPLITS`.
        module: Name of a training module.

    Returns:
        A path, or None as in `split_module`.
    """
    name = split_module(split, module)
    if name is None:
        return None
    return pathlib.Path(root) / split.replace("_", "-") / f"{name}.txt"


def write_problems(path, problems):
    """Writes problems to a file that is whole or not there.

    Args:
        path: The file.
        problems: Pairs of question and answer.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        whole_file(path) as partial,
        partial.open("w", encoding="ascii") as file,
    ):
        for question, answer in problems:
            file.write(f"{question}\n{answer}\n")


def read_problems(path):
    """Reads the problems of one file.

    Args:
        path: The file.

    Yields:
        Pairs of question and answer.

    Raises:
        UsageError: If the file is missing, empty or cut off, or holds a
            character outside the vocabulary.
    """
    if not path.is_file():
        raise UsageError(
            f"The file {path.parent.name}/{path.name} is missing below "
            f"{str(path.parent.parent)!r}. Restore it, or leave its module out."
        )
    known = set(CHARACTERS)
    question = None
    number = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            text = line.rstrip(b"\r\n").decode("latin-1")
            unknown = next((c for c in text if c not in known), None)
            if unknown is not None:
                raise UsageError(
                    f"Module {path.stem} ({path.parent.name}), line {number}: "
                    f"the character {unknown!r} is not in the vocabulary. "
                    "The file is damaged or of another dataset."
                )
            if not text:
                raise UsageError(
                    f"Module {path.stem} ({path.parent.name}), line {number} "
                    "is empty. The file is damaged or of another dataset."
                )
            if number % 2:
                question = text
            elif line.endswith(b"\n"):
                yield question, text
    if number == 0 or number % 2 or not line.endswith(b"\n"):
        raise UsageError(
            f"The file {path} is {'empty' if number == 0 else 'cut off'}: it "
            f"has {number} lines, where questions and answers alternate and "
            "every line has an end. "
            "Fetch or generate it again."
        )
