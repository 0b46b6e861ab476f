"""Compiles functions of token ids, on every backend."""

import logging
import threading
import time

import keras
import numpy as np
import optree

# Keras layers are traced by one thread at a time.
_TRACING = threading.RLock()
# About what PyTorch takes to trace a model.
_EAGER_SECONDS = 4.0
# Each is for other sizes of what a function depends on.
_MOST_GRAPHS = 8

_log = logging.getLogger(__name__)


def compiled(function, variables):
    """Compiles a function of token ids.

    On TensorFlow it is traced once, for every shape, but a first single row is
    computed eagerly, which takes a third of the time of tracing. On JAX it is
    compiled for each shape. PyTorch runs it eagerly, but for its parts that
    are a `TorchGraph`.

    Args:
        function: Function of int32 tensors `(batch, length)` to a dict of
            tensors.
        variables: List of the variables that it reads.

    Returns:
        Function of int32 NumPy arrays to a dict of NumPy arrays, which threads
        may share.
    """
    if keras.backend.backend() == "tensorflow":
        function = _on_tensorflow(function)
    elif keras.backend.backend() == "jax":
        function = _on_jax(function, variables)
    elif keras.backend.backend() == "torch":
        import torch

        function = torch.inference_mode()(function)

    def call(*token_ids):
        found = function(*map(keras.ops.convert_to_tensor, token_ids))
        return {
            name: np.asarray(keras.ops.convert_to_numpy(values))
            for name, values in found.items()
        }

    return call


def _on_tensorflow(function):
    import tensorflow as tf

    is_first = True
    traced = None

    def run(*token_ids):
        nonlocal is_first, traced
        is_eager = is_first and len(token_ids[0]) == 1
        is_first = False
        if is_eager:
            return function(*token_ids)
        if traced is None:
            with _TRACING:
                # Another thread may have traced it in the meantime.
                if traced is None:
                    spec = tf.TensorSpec((None, None), tf.int32)
                    specs = [spec] * len(token_ids)
                    traced = tf.function(
                        function, input_signature=specs, autograph=False
                    ).get_concrete_function()
        return traced(*token_ids)

    return run


def _on_jax(function, variables):
    import jax

    @jax.jit
    def stateless(values, *token_ids):
        with keras.StatelessScope(state_mapping=zip(variables, values)):
            return function(*token_ids)

    traced_shapes = set()

    def run(*token_ids):
        values = [variable.value for variable in variables]
        shapes = tuple(each.shape for each in token_ids)
        if shapes in traced_shapes:
            return stateless(values, *token_ids)
        with _TRACING:
            found = stateless(values, *token_ids)
        traced_shapes.add(shapes)
        return found

    return run


class TorchGraph:
    """A function of nested tensors that becomes graphs of PyTorch's own ops.

    Around a small op, Keras's Python takes most of the time. Calls are eager
    until they have taken about as long as tracing does. Then the function is
    traced, for any size of the axes whose size it does not depend on. Where it
    does, calls with other sizes are eager until it is traced for those, too. A
    function that cannot be traced, or often depends on sizes, stays eager.

    Args:
        function: Function of tensors in dicts and tuples to such tensors. It
            is the same for all calls.
    """

    def __init__(self, function):
        self._function = function
        self._can_trace = True
        # The sizes that a graph takes, and the graph.
        self._graphs = []
        self._eager_seconds = 0.0

    def __call__(self, *inputs):
        tensors = optree.tree_leaves(inputs)
        sizes = [size for tensor in tensors for size in tensor.shape]
        for traced_sizes, graph in self._graphs:
            if _fits(sizes, traced_sizes):
                try:
                    return graph(*tensors)
                except (AssertionError, RuntimeError):
                    continue  # A layer takes another branch for these sizes.
        # No layer runs here while another thread traces one.
        with _TRACING:
            start = time.perf_counter()
            outputs = self._function(*inputs)
            self._eager_seconds += time.perf_counter() - start
            if self._can_trace and self._eager_seconds >= _EAGER_SECONDS:
                self._trace(inputs, outputs)
        return outputs

    def _trace(self, inputs, outputs):
        self._eager_seconds = 0.0
        try:
            sizes, graph = _torch_graph(self._function, inputs)
        except Exception as error:  # of PyTorch, or of a layer
            _log.debug("PyTorch cannot trace it: %s", error)
            self._can_trace = False
            return
        structure = optree.tree_structure(outputs)

        def packed(*tensors):
            return optree.tree_unflatten(structure, graph(*tensors))

        self._graphs.append((sizes, packed))
        self._can_trace = len(self._graphs) < _MOST_GRAPHS


def _fits(sizes, traced_sizes):
    """Compares sizes with integers, and with names of sizes above 1."""
    named = {}
    return all(
        size == traced
        if isinstance(traced, int)
        else size > 1 and named.setdefault(traced, size) == size
        for size, traced in zip(sizes, traced_sizes)
    )


def _torch_graph(function, inputs):
    """Traces a function as a graph, whose inputs and outputs are flat.

    Returns the sizes that it takes, for `_fits`, and the graph.
    """
    import torch

    tensors, structure = optree.tree_flatten(inputs)
    module = torch.nn.Module()
    # A cache is copied once, and not at each step that reads it.
    module.forward = lambda *tensors: tuple(
        leaf.contiguous()
        for leaf in optree.tree_leaves(
            function(*optree.tree_unflatten(structure, tensors))
        )
    )
    # PyTorch takes sizes of 0 and 1 for constants, with a warning if asked.
    axes = tuple(
        {
            axis: torch.export.Dim.AUTO
            for axis, size in enumerate(tensor.shape)
            if size > 1
        }
        for tensor in tensors
    )
    with torch.inference_mode(False), torch.no_grad():
        # Tensors of inference mode cannot be traced.
        tensors = tuple(each.clone() for each in tensors)
        program = torch.export.export(
            module, tensors, dynamic_shapes=(axes,), strict=False
        )
        traced = program.module()
    names = [
        str(size)
        for node in traced.graph.find_nodes(op="placeholder")
        for size in node.meta["val"].shape
    ]
    sizes = [int(name) if name.isdigit() else name for name in names]
    _simplify(traced)
    traced.graph.set_codegen(torch.fx.graph.CodeGen())
    traced.recompile()
    # A call would check the sizes, as `_fits` has done.
    return sizes, traced.forward


def _simplify(module):
    """Removes what changes nothing, and what is computed twice."""
    graph = module.graph
    if any(map(_writes, graph.nodes)):
        return  # What was written to must not be computed anew.
    # Outputs stay tensors of their own, which a cast to their dtype is not.
    outputs = graph.output_node().all_input_nodes
    first = {}
    for node in list(graph.nodes):
        kept = node
        if _is_op(node, "_assert_"):
            graph.erase_node(node)
        elif node.op != "call_function":
            pass
        elif _is_op(node, "to.") and _is_same_kind(node):
            kept = node.args[0]
        elif node in outputs:
            pass
        elif _is_op(node, "clone") and _is_same_kind(node):
            kept = node.args[0]
        elif _swaps_heads(node) and _swaps_heads(node.args[0]):
            kept = node.args[0].args[0]
        elif _is_op(node, "lift_fresh_copy"):
            # Layers make the same constants.
            constant = getattr(module, node.args[0].target)
            key = constant.dtype, constant.shape, repr(constant.tolist())
            kept = first.setdefault(key, node.args[0])
        else:
            key = str(node.target), repr(node.args), repr(node.kwargs)
            if key not in first:
                first[key] = _stored_view(module, node)
            kept = first[key]
        if kept is not node:
            node.replace_all_uses_with(kept)
            graph.erase_node(node)
    graph.eliminate_dead_code()


def _is_op(node, *names):
    return str(node.target).startswith(tuple(f"aten.{name}" for name in names))


def _is_same_kind(node):
    """True for a cast or a copy to the same dtype, device and strides."""
    values = node.meta["val"], node.args[0].meta["val"]
    kinds = {(value.dtype, value.device) for value in values}
    return len(kinds) == 1 and "memory_format" not in node.kwargs


def _swaps_heads(node):
    """True for a transposition of positions and heads, which undoes itself."""
    if _is_op(node, "transpose"):
        return sorted(node.args[1:]) == [1, 2]
    return _is_op(node, "permute") and node.args[1] == [0, 2, 1, 3]


def _writes(node):
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _stored_view(module, node):
    """Replaces a view of a weight by one that is made once, or nothing."""
    source = node.args[0] if node.args else None
    if node.all_input_nodes != [source] or source.op != "get_attr":
        return node
    weight = getattr(module, source.target)
    view = node.target(weight, *node.args[1:], **node.kwargs)
    if view.untyped_storage().data_ptr() != weight.untyped_storage().data_ptr():
        return node
    module.register_buffer(node.name, view)
    with module.graph.inserting_before(node):
        stored = module.graph.get_attr(node.name)
    stored.meta = node.meta
    return stored
