"""Types of the public interface."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any
from typing import TypeAlias

# A tensor of Keras's backend, or a NumPy array. Keras itself has no types.
Tensor: TypeAlias = Any
StrPath: TypeAlias = str | os.PathLike[str]
if TYPE_CHECKING:
    # A configuration takes any sequence, and makes a tuple of it.
    Items: TypeAlias = Sequence[Any]
else:
    Items = tuple
