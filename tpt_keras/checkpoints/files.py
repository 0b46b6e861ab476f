"""Checkpoint files in the released format, and their vocabularies."""

import os
import pathlib

from tpt_keras.errors import UsageError
from tpt_keras.files import reading
from tpt_keras.files import whole_file
from tpt_keras.tokenizers.character_tokenizer import END
from tpt_keras.tokenizers.character_tokenizer import PAD
from tpt_keras.tokenizers.character_tokenizer import START
from tpt_keras.tokenizers.character_tokenizer import UNKNOWN
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer

# torchtext's special symbols in its order, and ours.
REFERENCE_SYMBOLS = {
    "<unk>": UNKNOWN,
    "<pad>": PAD,
    "<sos>": START,
    "<eos>": END,
}
# The released models were wrapped in `torch.nn.DataParallel`.
_PREFIX = "module."


def read_checkpoint(path):
    """Reads a checkpoint in the released format.

    PyTorch's zip format and its older stream format, which the released files
    have, are both read. No code of the file is run. Returns a dict of names,
    without `"module."`, to float32 arrays; and the vocabulary's symbols, which
    only `write_checkpoint` adds, or `None`.
    """
    import torch

    path = pathlib.Path(path)
    if not path.is_file():
        raise UsageError(
            f"There is no checkpoint file {str(path)!r}.", path=path
        )
    with reading(path, "Download or copy it again."):
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        weights = {
            name.removeprefix(_PREFIX): tensor.detach().float().numpy()
            for name, tensor in checkpoint["model"].items()
        }
        return weights, checkpoint.get("vocabulary")


def write_checkpoint(path, weights, vocabulary):
    """Writes a checkpoint in the released format.

    The file has all the keys that the released code reads, in PyTorch's stream
    format. For that code it is a model before its first training step.
    """
    import torch

    # All but the buffer of sinusoids.
    num_parameters = len(weights) - 1
    checkpoint = {
        "global_step": 0,
        "model": {
            _PREFIX + name: torch.from_numpy(array.copy())
            for name, array in weights.items()
        },
        # The state of the paper's optimizer.
        "optimizer": {
            "state": {},
            "param_groups": [
                {
                    "lr": 1e-4,
                    "betas": (0.9, 0.995),
                    "eps": 1e-8,
                    "weight_decay": 0,
                    "amsgrad": False,
                    "params": list(range(num_parameters)),
                }
            ],
        },
        "best_eval_loss": float("inf"),
        "best_eval_acc": 0.0,
        "best_step": 0,
        "vocabulary": list(vocabulary),
    }
    with whole_file(path) as partial, partial.open("wb") as file:
        torch.save(checkpoint, file, _use_new_zipfile_serialization=False)


def read_vocabulary(source):
    """Reads the vocabulary of a released checkpoint.

    The released `vocab.pt` is an object of an old version of torchtext. With
    that version installed, this writes the text file:

    ```python
    symbols = torch.load("vocab.pt", weights_only=False).itos
    pathlib.Path("vocabulary.txt").write_text("".join(symbols[4:]))
    ```

    Args:
        source: Path of a text file with one line: the characters in the order
            of their token ids, without the four special symbols. Or a
            sequence of all symbols.

    Returns:
        Tuple of symbols, as `TransformerConfig.vocabulary`.

    Raises:
        UsageError: If there is no such file, or the symbols make no
            vocabulary.
        UnreadableFileError: If the file has no line of characters.

    Example:

    >>> read_vocabulary(["<unk>", "<pad>", "<sos>", "<eos>", " ", "e"])
    ('<unknown>', '<pad>', '<start>', '<end>', ' ', 'e')
    """
    if isinstance(source, (str, os.PathLike)):
        with reading(source, "Give a text file with one line of characters."):
            line = pathlib.Path(source).read_text("utf-8").rstrip("\r\n")
            if not line.isprintable():
                raise ValueError("it is not one line of characters")
        source = (*REFERENCE_SYMBOLS, *line)
    symbols = [REFERENCE_SYMBOLS.get(symbol, symbol) for symbol in source]
    return CharacterTokenizer(symbols).vocabulary
