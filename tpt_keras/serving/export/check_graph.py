import pathlib

from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry


def check_graph(saved_model_dir):
    """Refuses a SavedModel that a stock TF Serving could not run.

    Such a server has no Python and no custom ops, and XLA is turned off in it:
    a graph with one of XLA's ops (`keras.ops.slice_update` makes one) loads
    and then fails at the first request.

    Args:
        saved_model_dir: The SavedModel.

    Raises:
        ValueError: With the names of the ops.
    """
    saved_model = saved_model_pb2.SavedModel.FromString(
        (pathlib.Path(saved_model_dir) / "saved_model.pb").read_bytes()
    )
    refused = set()
    for meta_graph in saved_model.meta_graphs:
        graph = meta_graph.graph_def
        functions = {f.signature.name for f in graph.library.function}
        bodies = [graph.node] + [f.node_def for f in graph.library.function]
        for node in (node for nodes in bodies for node in nodes):
            if node.op.startswith("Xla") or "PyFunc" in node.op:
                refused.add(node.op)
            # Ops of other packages have a name space: "Text>Tokenize".
            if node.op not in functions and (
                ">" in node.op or op_def_registry.get(node.op) is None
            ):
                refused.add(f"{node.op} (custom)")
            if node.attr["_XlaMustCompile"].b:
                refused.add(f"{node.op} (marked for XLA)")
        for function in graph.library.function:
            if function.attr["_XlaMustCompile"].b:
                refused.add(f"{function.signature.name} (marked for XLA)")
    if refused:
        raise ValueError(
            "A stock TF Serving could not run this graph: "
            f"{', '.join(sorted(refused))}."
        )
