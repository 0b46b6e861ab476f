"""The authors' released PyTorch checkpoints, as Keras models.

Needs PyTorch: `pip install 'tpt_keras[torch]'`.
"""

from tpt_keras.checkpoints.conversion import from_reference
from tpt_keras.checkpoints.conversion import read_vocabulary

__all__ = [
    "from_reference",
    "read_vocabulary",
]
