"""Export of a model as a SavedModel that a stock TF Serving can run."""

from tpt_keras.serving.export.check_graph import check_graph
from tpt_keras.serving.export.export_model import PRECISIONS
from tpt_keras.serving.export.export_model import export
