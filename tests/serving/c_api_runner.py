"""Runs a SavedModel through TensorFlow's C API, as a server in C++ does.

The process loads TensorFlow's shared libraries, but neither its Python nor
Keras. As in TF Serving, XLA compiles nothing.

    python -I tests/serving/c_api_runner.py < job.json

The job has `saved_model`, a path; `has_xla`, which enables XLA; and `runs`, a
list of dicts of `inputs` (tensor names to dicts of `dtype`, `shape` and the
flat `values`) and `outputs` (any keys to tensor names). Standard output has
`results`: the outputs of each run in the form of the inputs, or
`{"error": [where, code, message]}`. Strings are in base64.
"""

import base64
import ctypes
import importlib.util
import json
import math
import os
import sys

FORBIDDEN = ("tensorflow", "keras", "numpy", "tpt_keras")
# Codes of the C API.
FLOAT, STRING = 1, 7
SIZE_OF_STRING = 24  # sizeof(TF_TString)


class Output(ctypes.Structure):
    """TF_Output: a tensor of a graph."""

    _fields_ = [("operation", ctypes.c_void_p), ("index", ctypes.c_int)]


class Error(Exception):
    """An error of TensorFlow: the place, a code and a message."""


class Library:
    """The functions of the shared libraries in the pip package.

    They are those of the folder TENSORFLOW_FOLDER, which may be of another
    version, or else of the installed package.
    """

    def __init__(self):
        folder = os.environ.get("TENSORFLOW_FOLDER")
        if folder is None:
            # Finds the package without importing it.
            spec = importlib.util.find_spec("tensorflow")
            folder = spec.submodule_search_locations[0]
        self._libraries = [
            ctypes.CDLL(os.path.join(folder, name), mode=ctypes.RTLD_GLOBAL)
            for name in (
                "libtensorflow_framework.so.2",
                "libtensorflow_cc.so.2",
            )
        ]
        self.status = self("TF_NewStatus", ctypes.c_void_p)()

    def __call__(self, name, result=None):
        """Returns a function of either library."""
        for library in self._libraries:
            try:
                function = library[name]
            except AttributeError:
                continue
            function.restype = result
            return function
        raise AttributeError(name)

    def check(self, where):
        """Raises an `Error` if the last call failed."""
        status = ctypes.c_void_p(self.status)
        code = self("TF_GetCode", ctypes.c_int)(status)
        if code:
            message = self("TF_Message", ctypes.c_char_p)(status)
            raise Error(where, code, message.decode())


def main():
    tf = Library()
    job = json.load(sys.stdin)
    if not job["has_xla"]:
        # tensorflow::DisableXlaCompilation(), which is not in the C API.
        tf("_ZN10tensorflow21DisableXlaCompilationEv")()
    try:
        graph, session = load(tf, job["saved_model"])
    except Error as error:
        results = [{"error": error.args}]
    else:
        results = []
        for run in job["runs"]:
            try:
                results.append(run_session(tf, graph, session, run))
            except Error as error:
                results.append({"error": error.args})
    imported = [name for name in FORBIDDEN if name in sys.modules]
    assert not imported, imported
    json.dump({"results": results}, sys.stdout)
    sys.stdout.flush()
    # Without waiting for TensorFlow's threads.
    os._exit(0)


def load(tf, path):
    graph = ctypes.c_void_p(tf("TF_NewGraph", ctypes.c_void_p)())
    session = tf("TF_LoadSessionFromSavedModel", ctypes.c_void_p)(
        ctypes.c_void_p(tf("TF_NewSessionOptions", ctypes.c_void_p)()),
        None,
        path.encode(),
        (ctypes.c_char_p * 1)(b"serve"),
        1,
        graph,
        ctypes.c_void_p(tf("TF_NewBuffer", ctypes.c_void_p)()),
        ctypes.c_void_p(tf.status),
    )
    tf.check("load")
    return graph, ctypes.c_void_p(session)


def run_session(tf, graph, session, run):
    inputs, outputs = run["inputs"], run["outputs"]
    fed = (ctypes.c_void_p * len(inputs))(
        *(make_tensor(tf, **tensor).value for tensor in inputs.values())
    )
    fetched = (ctypes.c_void_p * len(outputs))()
    tf("TF_SessionRun")(
        session,
        None,
        find_tensors(tf, graph, inputs),
        fed,
        len(inputs),
        find_tensors(tf, graph, outputs.values()),
        fetched,
        len(outputs),
        None,
        0,
        None,
        ctypes.c_void_p(tf.status),
    )
    tf.check("run")
    return {
        key: read_tensor(tf, ctypes.c_void_p(tensor))
        for key, tensor in zip(outputs, fetched)
    }


def find_tensors(tf, graph, names):
    """Array of TF_Output for tensor names: `operation:index`."""
    tensors = []
    for name in names:
        operation, index = name.split(":")
        found = tf("TF_GraphOperationByName", ctypes.c_void_p)(
            graph, operation.encode()
        )
        assert found, f"no operation {operation}"
        tensors.append(Output(found, int(index)))
    return (Output * len(tensors))(*tensors)


def make_tensor(tf, dtype, shape, values):
    assert len(values) == math.prod(shape)
    code, size = {
        "float32": (FLOAT, ctypes.sizeof(ctypes.c_float)),
        "string": (STRING, SIZE_OF_STRING),
    }[dtype]
    tensor = tf("TF_AllocateTensor", ctypes.c_void_p)(
        code,
        (ctypes.c_int64 * len(shape))(*shape),
        len(shape),
        ctypes.c_size_t(len(values) * size),
    )
    tensor = ctypes.c_void_p(tensor)
    data = tf("TF_TensorData", ctypes.c_void_p)(tensor)
    if dtype == "string":
        for place, value in enumerate(map(base64.b64decode, values)):
            string = ctypes.c_void_p(data + place * SIZE_OF_STRING)
            tf("TF_StringInit")(string)
            tf("TF_StringCopy")(string, value, ctypes.c_size_t(len(value)))
    else:
        array = (ctypes.c_float * len(values))(*values)
        ctypes.memmove(data, array, ctypes.sizeof(array))
    return tensor


def read_tensor(tf, tensor):
    shape = [
        tf("TF_Dim", ctypes.c_int64)(tensor, axis)
        for axis in range(tf("TF_NumDims", ctypes.c_int)(tensor))
    ]
    size = math.prod(shape)
    code = tf("TF_TensorType", ctypes.c_int)(tensor)
    data = tf("TF_TensorData", ctypes.c_void_p)(tensor)
    if code == STRING:
        dtype, values = "string", []
        for place in range(size):
            string = ctypes.c_void_p(data + place * SIZE_OF_STRING)
            start = tf("TF_StringGetDataPointer", ctypes.c_void_p)(string)
            length = tf("TF_StringGetSize", ctypes.c_size_t)(string)
            value = ctypes.string_at(start, length)
            values.append(base64.b64encode(value).decode())
    else:
        assert code == FLOAT
        dtype, numbers = "float32", ctypes.c_float * size
        # An empty tensor has no data.
        values = list(numbers.from_address(data)) if size else []
    return {"dtype": dtype, "shape": shape, "values": values}


if __name__ == "__main__":
    main()
