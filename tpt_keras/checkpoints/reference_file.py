"""Checkpoint files in the released format, read without running them."""

import pathlib
import re
import warnings

from tpt_keras.checkpoints.reference_weights import SINUSOIDS
from tpt_keras.errors import UsageError

# The released models were wrapped in `torch.nn.DataParallel`.
PREFIX = "module."


def read_checkpoint(path):
    """The weights of a checkpoint in the released format.

    Both of PyTorch's formats are read: the old stream, in which the released
    files are written, and the zip archive. Nothing in the file is run.

    Args:
        path: The file.

    Returns:
        Dict of name, without `"module."`, to float32 array; and the list of
        the vocabulary's symbols, which `write_checkpoint` adds to the file,
        or `None`.

    Raises:
        UsageError: If PyTorch is missing, if there is no such file, or if it
            is no such checkpoint or holds more than weights.
    """
    torch = import_torch()
    path = pathlib.Path(path)
    if not path.is_file():
        raise UsageError(f"There is no checkpoint file {str(path)!r}.")
    checkpoint = _load(torch, path)
    state = checkpoint.get("model") if isinstance(checkpoint, dict) else None
    if not isinstance(state, dict) or not state:
        raise UsageError(
            f"The file {str(path)!r} is no checkpoint in the released format: "
            'it has no weights under the key "model".'
        )
    weights = {}
    for name, tensor in state.items():
        if (
            not isinstance(tensor, torch.Tensor)
            or not tensor.is_floating_point()
        ):
            raise UsageError(
                f"The checkpoint {str(path)!r} holds something other than a "
                f"tensor of weights under the name {name!r}."
            )
        weights[str(name).removeprefix(PREFIX)] = tensor.float().numpy()
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
        with pathlib.Path(path).open("wb") as file:
            torch.save(checkpoint, file, _use_new_zipfile_serialization=False)
    except OSError as error:
        raise UsageError(
            f"Cannot write the checkpoint {str(path)!r}: {error.strerror}."
        ) from error


def import_torch():
    """The module `torch`, or a `UsageError` that says how to get it."""
    try:
        import torch
    except ImportError:
        raise UsageError(
            "Checkpoints of the released code need PyTorch. Install it with "
            "pip install tpt_keras[torch]"
        ) from None
    return torch


def _load(torch, path):
    try:
        with path.open("rb") as file, warnings.catch_warnings():
            # It remarks on pickles that PyTorch did not write; we refuse them.
            warnings.simplefilter("ignore")
            return torch.load(file, map_location="cpu", weights_only=True)
    # A damaged or hostile file makes it raise nearly anything: EOFError,
    # KeyError, OSError, IndexError, RuntimeError, UnpicklingError, ...
    except Exception as error:
        refused = re.search(r"GLOBAL ([\w.]+)", str(error))
        if refused:
            raise UsageError(
                f"The file {str(path)!r} is refused: it holds more than "
                f"weights and wants to use {refused[1]}."
            ) from error
        raise UsageError(
            f"The file {str(path)!r} is no PyTorch checkpoint, or it is "
            "damaged. Download or copy it again."
        ) from error


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
