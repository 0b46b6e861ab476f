"""Reading of a pickle that nobody trusts.

Python's own unpickler, and PyTorch's, import or call or hash what a pickle
tells them to, and a few hundred bytes are enough to keep them busy for ever.
Here an instruction takes no longer than its bytes do, nothing is imported and
nothing is called: what a pickle wants made is only noted.
"""

import pickle
import pickletools
from typing import NamedTuple

# The pickles in the released files have some hundred thousand bytes.
MAX_BYTES = 2**20
MAX_NAME = 200
# What may be called is noted as an empty one of these: items follow.
CONTAINERS = (
    "collections.Counter",
    "collections.OrderedDict",
    "collections.defaultdict",
)
_LITERALS = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"),
    *("FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
}


class Name(str):
    """The dotted name of a class or function, which was not imported."""


class Inert:
    """What a call would have made.

    Args:
        name: The dotted name of the class or function.
        arguments: What it would have been called with.
    """

    def __init__(self, name, arguments):
        self.name = name
        self.arguments = arguments
        self.attributes = {}


class Content(NamedTuple):
    """What a pickle holds.

    Args:
        value: Made of Python's own types, of `Name`s and of `Inert`s.
        functions: Names of what it wants called, in order, containers apart.
        classes: Names of the classes that it wants instances of, in order.
    """

    value: object
    functions: list
    classes: list


def read_pickle(stream, persistent_load=None):
    """Reads the next pickle of a stream.

    Args:
        stream: A binary file of at most `MAX_BYTES`.
        persistent_load: Function from a persistent id to what stands for it.

    Returns:
        A `Content`.

    Raises:
        pickle.UnpicklingError: If it is damaged, or none that the released
            code writes.
    """
    reader = _Reader(persistent_load)
    try:
        for opcode, argument, _ in pickletools.genops(stream):
            if opcode.name in _LITERALS:
                reader.stack.append(argument)
            else:
                getattr(reader, f"op_{opcode.name.lower()}")(argument)
        [value] = reader.stack
    # IndexError, KeyError, ValueError, AttributeError, UnicodeError, ...
    except Exception as error:
        raise pickle.UnpicklingError("the pickle is damaged") from error
    return Content(value, list(reader.functions), list(reader.classes))


class _Reader:
    """A stack and a memo, and a method for every instruction."""

    def __init__(self, persistent_load):
        self.stack = []
        self.functions = {}
        self.classes = {}
        self._marks = []
        self._memo = {}
        self._persistent_load = persistent_load

    def op_proto(self, _):
        pass

    def op_frame(self, _):
        pass

    def op_stop(self, _):
        pass

    def op_none(self, _):
        self.stack.append(None)

    def op_newtrue(self, _):
        self.stack.append(True)

    def op_newfalse(self, _):
        self.stack.append(False)

    def op_memoize(self, _):
        self._memo[len(self._memo)] = self.stack[-1]

    def op_put(self, index):
        self._memo[index] = self.stack[-1]

    op_binput = op_long_binput = op_put

    def op_get(self, index):
        self.stack.append(self._memo[index])

    op_binget = op_long_binget = op_get

    def op_mark(self, _):
        self._marks.append(len(self.stack))

    def _pop_items(self):
        """What was pushed since the last mark."""
        start = self._marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def op_empty_list(self, _):
        self.stack.append([])

    def op_append(self, _):
        item = self.stack.pop()
        _expect(self.stack[-1], list).append(item)

    def op_appends(self, _):
        items = self._pop_items()
        _expect(self.stack[-1], list).extend(items)

    def op_list(self, _):
        self.stack.append(self._pop_items())

    def op_empty_dict(self, _):
        self.stack.append({})

    def op_setitem(self, _):
        value = self.stack.pop()
        key = self.stack.pop()
        _set_items(self.stack[-1], [key, value])

    def op_setitems(self, _):
        items = self._pop_items()
        _set_items(self.stack[-1], items)

    def op_dict(self, _):
        items = self._pop_items()
        self.stack.append({})
        _set_items(self.stack[-1], items)

    def op_empty_tuple(self, _):
        self.stack.append(())

    def op_tuple1(self, _, size=1):
        items = tuple(self.stack[-size:])
        del self.stack[-size:]
        self.stack.append(items)

    def op_tuple2(self, _):
        self.op_tuple1(_, 2)

    def op_tuple3(self, _):
        self.op_tuple1(_, 3)

    def op_tuple(self, _):
        self.stack.append(tuple(self._pop_items()))

    def op_global(self, argument):
        self._push_name(*argument.split(" ", 1))

    def op_stack_global(self, _):
        name = _expect(self.stack.pop(), str)
        module = _expect(self.stack.pop(), str)
        self._push_name(module, name)

    def _push_name(self, module, name):
        # Both may be in the memo, and long, and put together many times.
        if len(module) + len(name) > MAX_NAME:
            raise ValueError("a name that is none")
        self.stack.append(Name(f"{module}.{name}"))

    def op_reduce(self, _):
        arguments = _expect(self.stack.pop(), tuple)
        name = _expect(self.stack.pop(), Name)
        if name in CONTAINERS:
            self.stack.append({})
        else:
            self.functions[name] = True
            self.stack.append(Inert(name, arguments))

    def op_newobj(self, _):
        arguments = _expect(self.stack.pop(), tuple)
        name = _expect(self.stack.pop(), Name)
        self.classes[name] = True
        self.stack.append(Inert(name, arguments))

    def op_build(self, _):
        state = self.stack.pop()
        # Attributes of a container are of no use here.
        if isinstance(self.stack[-1], Inert):
            self.stack[-1].attributes = _expect(state, dict)

    def op_binpersid(self, _):
        self.stack.append(self._persistent_load(self.stack.pop()))


def _expect(value, kind):
    if type(value) is not kind:
        raise TypeError(f"{type(value).__name__} in place of {kind.__name__}")
    return value


def _set_items(target, items):
    _expect(target, dict)
    for key, value in zip(items[::2], items[1::2]):
        # A tuple of tuples, or a large number, can take for ever to hash.
        if type(key) is not int or key.bit_length() > 64:
            _expect(key, str)
        target[key] = value
