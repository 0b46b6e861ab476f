"""The authors' released PyTorch checkpoints, from there and back.

Nothing here imports PyTorch before a checkpoint is written; it is the optional
extra `tpt_keras[torch]`. They are read without it.
"""

from tpt_keras.checkpoints.from_reference import from_reference
from tpt_keras.checkpoints.reference_vocabulary import read_vocabulary
from tpt_keras.checkpoints.to_reference import save_reference
from tpt_keras.checkpoints.to_reference import to_reference
