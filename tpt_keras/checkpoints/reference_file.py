"""Checkpoint files in the released format."""

import pathlib
import pickle
import re

import numpy as np

from tpt_keras.checkpoints.reference_weights import SINUSOIDS
from tpt_keras.checkpoints.torch_file import TorchFile
from tpt_keras.errors import UsageError
from tpt_keras.files import whole_file

# The released models were wrapped in `torch.nn.DataParallel`.
PREFIX = "module."


def read_checkpoint(path):
    """The weights of a checkpoint in the released format.

    Both of PyTorch's formats are read: the old stream, in which the released
    files are written, and the zip archive. PyTorch is not needed for it.
    Nothing in the file is run, and nothing is made that is larger.

    Args:
        path: The file.

    Returns:
        Dict of name, without `"module."`, to float32 array; and the list of
        the vocabulary's symbols, which `write_checkpoint` adds to the file,
        or `None`.

    Raises:
        UsageError: If there is no such file, or if it is no such checkpoint
            or holds more than weights.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise UsageError(f"There is no checkpoint file {str(path)!r}.")
    try:
        with path.open("rb") as file:
            return _read(path, TorchFile(file))
    except pickle.UnpicklingError as error:
        raise UsageError(
            f"The file {str(path)!r} is no PyTorch checkpoint, or it is "
            f"damaged: {error}. Download or copy it again."
        ) from error


def _read(path, file):
    for name in [*file.classes, *file.functions]:
        raise UsageError(
            f"The file {str(path)!r} is refused: it holds more than weights "
            f"and wants to use {ascii(name)[1:-1]}."
        )
    checkpoint = file.value
    state = checkpoint.get("model") if isinstance(checkpoint, dict) else None
    if not isinstance(state, dict) or not state:
        raise UsageError(
            f"The file {str(path)!r} is no checkpoint in the released format: "
            'it has no weights under the key "model".'
        )
    weights = {}
    for name, tensor in state.items():
        if not isinstance(name, str) or not re.fullmatch(r"[\w.]{1,200}", name):
            raise UsageError(
                f"The checkpoint {str(path)!r} holds a weight whose name is "
                f"none: {str(name)[:40]!r}."
            )
        try:
            array = file.read(tensor)
        except TypeError as error:
            raise UsageError(
                f"The checkpoint {str(path)!r} holds something other than a "
                f"tensor of weights under the name {name!r}: {error}."
            ) from None
        if not np.isfinite(array).all():
            raise UsageError(
                f"The checkpoint {str(path)!r} holds values that are NaN or "
                f"infinite under the name {name!r}: its training had failed. "
                "Take an earlier one."
            )
        weights[name.removeprefix(PREFIX)] = array
    symbols = checkpoint.get("vocabulary")
    return weights, symbols if isinstance(symbols, list) else None


def write_checkpoint(path, weights, vocabulary):
    """Writes a checkpoint in the released format.

    In the old stream format, with all the keys that the released code reads;
    it reads the file as a model that is yet to make its first step.

    Args:
        path: The file.
        weights: Dict of name, without `"module."`, to float32 array.
        vocabulary: The symbols, each at its token id. The released code
            ignores them.

    Raises:
        UsageError: If PyTorch is missing or the file cannot be written.
    """
    torch = import_torch()
    checkpoint = {
        "global_step": 0,
        "model": {
            PREFIX + name: torch.from_numpy(array.copy())
            for name, array in weights.items()
        },
        "optimizer": {
            "state": {},
            "param_groups": [_adam_group(weights)],
        },
        "best_eval_loss": float("inf"),
        "best_eval_acc": 0.0,
        "best_step": 0,
        "vocabulary": list(vocabulary),
    }
    try:
        with whole_file(path) as partial, partial.open("wb") as file:
            torch.save(checkpoint, file, _use_new_zipfile_serialization=False)
    # PyTorch has its own for a disk that is full.
    except (OSError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(
            f"Cannot write the checkpoint {str(path)!r}: {reason}."
        ) from error


def import_torch():
    """The module `torch`, or a `UsageError` that says how to get it."""
    try:
        import torch
    except ImportError:
        raise UsageError(
            "Writing checkpoints of the released code needs PyTorch. Install "
            "it with pip install tpt_keras[torch]"
        ) from None
    return torch


def _adam_group(weights):
    """The state of the paper's optimizer, for one group of parameters."""
    num_parameters = len(weights.keys() - {SINUSOIDS})
    return {
        "lr": 1e-4,
        "betas": (0.9, 0.995),
        "eps": 1e-8,
        "weight_decay": 0,
        "amsgrad": False,
        "params": list(range(num_parameters)),
    }
