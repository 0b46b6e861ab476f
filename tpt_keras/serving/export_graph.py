"""The graph of an exported model, from questions to answers."""

import pathlib

import keras
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry

from tpt_keras.answer import OK
from tpt_keras.models.weights import finite_values
from tpt_keras.tokenizers.graph_tokenizer import GraphTokenizer

# Questions that are encoded together.
GROUP_SIZE = 8
# A graph is a protocol buffer, which is limited to two gigabytes. It has the
# constants of answering and those of scoring.
MAX_CONSTANT_BYTES = 750_000_000


class ConstantWeights(keras.StatelessScope):
    """A scope in which bfloat16 weights are constants of TensorFlow's graph.

    oneDNN reorders a bfloat16 matrix before it multiplies. It reorders a
    constant once, and a variable at every product, which for small batches
    takes longer than the product itself. Weights of other dtypes, and weights
    that do not fit into a graph, stay variables.

    Every use of a weight is a constant of its own, because the inputs of a loop
    are not constant. Raises a `UsageError` if a weight is NaN or infinite.
    """

    def __init__(self, model):
        super().__init__()
        values = {id(v): finite_values(v) for v in model.variables}
        self._arrays = {
            key: array
            for key, array in values.items()
            if array.dtype == "bfloat16"
        }
        if sum(a.nbytes for a in self._arrays.values()) > MAX_CONSTANT_BYTES:
            self._arrays = {}
        # TensorFlow saves these variables.
        self.saved = [
            variable.value
            for variable in model.variables
            if id(variable) not in self._arrays
        ]

    def get_current_value(self, variable):
        array = self._arrays.get(id(variable))
        return None if array is None else tf.constant(array)


def _of_strings(*names):
    """A graph of a method that takes tensors of strings, all `(batch,)`."""
    specs = [tf.TensorSpec((None,), tf.string, name=name) for name in names]
    return tf.function(input_signature=specs, autograph=False)


class AnswerGraph:
    """A model from strings to strings in TensorFlow's graph.

    A question without an answer gets an empty answer and a status that says
    why. It does not fail the others, which may be questions of other users in
    a batch of TF Serving.

    Args:
        generator: A `Generator` with the model and the sampler.
        weights: A scope that gives the model's weights.
    """

    def __init__(self, generator, weights):
        model = generator.model
        self._generator = generator
        self.weights = weights
        self.tokenizer = GraphTokenizer(
            model.tokenizer, model.config.vocabulary_size
        )

    @_of_strings("questions")
    def answer(self, questions):
        """Returns `answers`, `log_probs` and `status`, all `(batch,)`."""
        best = self.answer_n_best(questions)
        return {
            "answers": best["answers"][:, 0],
            "log_probs": best["log_probs"][:, 0],
            "status": best["status"],
        }

    # `answer` calls the same graph, which is most of an export.
    @_of_strings("questions")
    def answer_n_best(self, questions):
        """Returns the best answers to each question, best first.

        Args:
            questions: String tensor `(batch,)`.

        Returns:
            Dict of `answers`, strings, and `log_probs`, float32, both `(batch,
            num_sequences)`; and of `status`, strings `(batch,)`.
        """
        token_ids, status = self._encode_questions(questions)
        with self.weights:
            found = self._generate(token_ids)
        answers = self.tokenizer.decode(found["token_ids"])
        is_ok = tf.equal(status, OK)[:, tf.newaxis]
        return {
            "answers": tf.where(is_ok, answers, ""),
            "log_probs": tf.where(is_ok, found["log_probs"], 0.0),
            "status": status,
        }

    @_of_strings("questions", "answers")
    def score(self, questions, answers):
        """Returns the `log_probs` of answers and a `status`, all `(batch,)`."""
        token_ids, status = self._encode_questions(questions)
        answer_ids, answer_status = self.tokenizer.encode(
            answers, self._generator.max_length
        )
        with self.weights:
            found = self._generator.score_token_ids(token_ids, answer_ids)
        status = tf.where(tf.equal(status, OK), answer_status, status)
        is_ok = tf.equal(status, OK)
        return {
            "log_probs": tf.where(is_ok, found["log_probs"], 0.0),
            "status": status,
        }

    def _encode_questions(self, questions):
        longest = self._generator.model.config.max_question_length
        return self.tokenizer.encode(questions, longest, questions=True)

    def _generate(self, token_ids):
        """Decodes answers after encoding questions sorted by length."""
        is_token = self._generator.model.padding_mask(token_ids)
        lengths = tf.math.count_nonzero(is_token, axis=-1, dtype=tf.int32)
        order = tf.argsort(lengths, stable=True)
        token_ids = tf.gather(token_ids, order)
        cache = encode_in_groups(
            self._generator.init_cache, token_ids, tf.gather(lengths, order)
        )
        found = self._generator.generate(token_ids, cache)
        rows = tf.math.invert_permutation(order)
        return {name: tf.gather(values, rows) for name, values in found.items()}


def encode_in_groups(encode, token_ids, lengths):
    """Encodes questions in groups of similar lengths, with less padding.

    Args:
        encode: Function of token ids `(rows, length)` to tensors `(rows, ...)`
            in any structure. Axes of unknown size must be source positions;
            they are padded with zeros.
        token_ids: Tensor `(batch, source_length)`, sorted by length.
        lengths: Tensor `(batch,)`, the number of tokens without padding.
    """
    encode = tf.function(
        encode,
        input_signature=[tf.TensorSpec((None, None), token_ids.dtype)],
        autograph=False,
    ).get_concrete_function()
    specs = tf.nest.flatten(encode.structured_outputs)
    batch_size, source_length = tf.unstack(tf.shape(token_ids))
    # At least one group, because an empty batch has outputs too.
    num_groups = tf.maximum(1, -(-batch_size // GROUP_SIZE))

    def padded(values, spec, more):
        paddings = [
            (0, more if axis and size is None else 0)
            for axis, size in enumerate(spec.shape)
        ]
        return tf.pad(values, paddings)

    def encode_group(index, arrays):
        rows = slice(index * GROUP_SIZE, (index + 1) * GROUP_SIZE)
        length = tf.maximum(tf.reduce_max(lengths[rows]), 0)
        encoded = tf.nest.flatten(encode(token_ids[rows, :length]))
        arrays = [
            array.write(index, padded(values, spec, source_length - length))
            for array, values, spec in zip(arrays, encoded, specs)
        ]
        return index + 1, arrays

    arrays = [
        tf.TensorArray(spec.dtype, num_groups, infer_shape=False)
        for spec in specs
    ]
    _, arrays = tf.while_loop(
        lambda index, arrays: index < num_groups, encode_group, (0, arrays)
    )
    encoded = [
        tf.ensure_shape(array.concat(), spec.shape)
        for array, spec in zip(arrays, specs)
    ]
    return tf.nest.pack_sequence_as(encode.structured_outputs, encoded)


def check_graph(saved_model_dir):
    """Raises a `ValueError` if a stock TF Serving cannot run a SavedModel.

    The stock server has no Python, no custom ops and no XLA. A graph with an
    op of these kinds loads, and fails at the first request
    (`keras.ops.slice_update` becomes an op of XLA).
    """
    saved_model = saved_model_pb2.SavedModel.FromString(
        (pathlib.Path(saved_model_dir) / "saved_model.pb").read_bytes()
    )
    refused = set()
    for meta_graph in saved_model.meta_graphs:
        graph = meta_graph.graph_def
        library = graph.library.function
        ops = [(f.signature.name, f.attr) for f in library]
        functions = dict(ops)
        for nodes in (graph.node, *(f.node_def for f in library)):
            ops += [(node.op, node.attr) for node in nodes]
        for op, attr in ops:
            if attr["_XlaMustCompile"].b:
                refused.add(f"{op} (marked for XLA)")
            if op.startswith("Xla") or "PyFunc" in op:
                refused.add(op)
            # Ops of other packages have a namespace: "Text>Tokenize".
            is_known = ">" not in op and op_def_registry.get(op) is not None
            if op not in functions and not is_known:
                refused.add(f"{op} (custom)")
    if refused:
        raise ValueError(
            "A stock TF Serving cannot run this graph: "
            f"{', '.join(sorted(refused))}."
        )
