"""A vocabulary as the released `vocab.pt` holds it, without torchtext."""

import contextlib
import sys
import types
from collections import Counter
from collections import defaultdict
from unittest import mock

# The right number of characters; their order in the released file is not
# published anywhere but in it.
CHARACTERS = (
    " 0123456789abcdefghijklmnopqrstuvwxyzACDEFGHILMPRSTW!'()*+,-./:<=>?{}"
)
SYMBOLS = ("<unk>", "<pad>", "<sos>", "<eos>", *CHARACTERS)


@contextlib.contextmanager
def torchtext_vocabulary(symbols=SYMBOLS, **attributes):
    """An object that pickles like torchtext 0.3's `Vocab`, in this context.

    Args:
        symbols: Its list `itos`.
        **attributes: More of its attributes.

    Yields:
        The object; its class is gone when the context ends.
    """
    module = types.ModuleType("torchtext.vocab")

    class Vocab:
        pass

    def _default_unk_index():
        return 0

    for value in (Vocab, _default_unk_index):
        value.__module__ = module.__name__
        value.__qualname__ = value.__name__
        setattr(module, value.__name__, value)
    vocabulary = Vocab()
    vocabulary.freqs = Counter(symbols[4:])
    vocabulary.itos = list(symbols)
    vocabulary.stoi = defaultdict(_default_unk_index)
    vocabulary.stoi.update({s: i for i, s in enumerate(symbols)})
    vocabulary.vectors = None
    vars(vocabulary).update(attributes)
    modules = {
        "torchtext": types.ModuleType("torchtext"),
        module.__name__: module,
    }
    with mock.patch.dict(sys.modules, modules):
        yield vocabulary
