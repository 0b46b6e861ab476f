"""The authors' released PyTorch checkpoints, there and back.

Needs PyTorch: `pip install 'tpt_keras[torch]'`.
"""

from tpt_keras.checkpoints.conversion import from_reference
from tpt_keras.checkpoints.conversion import read_vocabulary
from tpt_keras.checkpoints.conversion import save_reference
from tpt_keras.checkpoints.conversion import to_reference

__all__ = [
    "from_reference",
    "read_vocabulary",
    "save_reference",
    "to_reference",
]
