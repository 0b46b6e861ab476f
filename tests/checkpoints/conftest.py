import sys

# PyTorch's optimizers import it, which crashes after TensorFlow is imported.
sys.modules.setdefault("triton", None)
