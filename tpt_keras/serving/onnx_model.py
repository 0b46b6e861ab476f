"""ONNX exports and their answers in this process."""

import json

import numpy as np

from tpt_keras.answer import Answer
from tpt_keras.answer import AnsweringModel
from tpt_keras.errors import require
from tpt_keras.files import reading
from tpt_keras.serving.versions import ADVICE
from tpt_keras.serving.versions import newest_version
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer
from tpt_keras.typing import StrPath

ENCODE_FILE = "encode.onnx"
DECODE_FILE = "decode_step.onnx"
CONFIG_FILE = "config.json"
# What the names of the changed tensors of a cache start with.
NEW = "new_"
# Ended answers leave the batch when no more than this share is left.
_UNFINISHED_SHARE = 0.75
# A step of at most so many rows takes one thread: others cost more than they
# save, because it waits for the weights.
_FEW_ROWS = 4


class OnnxModel(AnsweringModel):
    """A model exported as ONNX graphs, in this process.

    Needs NumPy and ONNX Runtime, and neither Keras nor TensorFlow. `score`
    takes a step for each token of an answer.

    Args:
        path: An export of `export_onnx`, or the folder of its versions.

    Attributes:
        path: The export.
        config: Dict of the model's hyperparameters.

    Raises:
        UsageError: If there is no export, or it cannot be loaded.
        MissingDependencyError: Without the extra `tpt_keras[onnx]`.

    Example:

    ```python
    model = OnnxModel("onnx/demo")
    model.solve(["What is the tens digit of 31859?"])  # ['5']
    ```
    """

    def __init__(self, path: StrPath) -> None:
        require("onnxruntime", "onnx")
        self.path = newest_version(path, ENCODE_FILE, "ONNX export")
        with reading(self.path, ADVICE):
            self.config = json.loads((self.path / CONFIG_FILE).read_bytes())
            self.tokenizer = CharacterTokenizer(
                self.config["vocabulary"],
                # Exports of earlier versions have none.
                self.config.get("answer_order", "as_written"),
            )
            # All now: the version's folder may be deleted later.
            self._encode = self._session(ENCODE_FILE)
            self._step_few = self._session(DECODE_FILE, 1)
            self._step_many = self._session(DECODE_FILE)

    def _session(self, name, num_threads=0):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        # 0 is a thread for each core.
        options.intra_op_num_threads = num_threads
        return onnxruntime.InferenceSession(
            self.path / name, options, providers=["CPUExecutionProvider"]
        )

    def _answer_batch(self, questions, given=None):
        # The graphs of another program may return anything.
        with reading(self.path, ADVICE):
            return list(self._generate(questions, given))

    def _score_batch(self, questions, answers):
        given = self.tokenizer.encode_batch(answers)
        return self._answer_batch(questions, given)

    def _generate(self, texts, given):
        """Yields the answers that are decoded greedily, or the given ones."""
        pad_id, end_id = self.tokenizer.pad_id, self.tokenizer.end_id
        cache = self._encoded(texts)
        changing = [x.name for x in self._step_few.get_outputs()[1:]]
        changing = [name.removeprefix(NEW) for name in changing]
        is_token = self.tokenizer.answer_mask(self.config["vocabulary_size"])
        max_length = self.config["max_answer_length"]
        found = np.full((len(texts), max_length), pad_id)
        log_probs = np.zeros(len(texts))
        # The rows of the batch, their last tokens, and those that have ended.
        rows = np.arange(len(texts))
        last = np.full(len(texts), self.tokenizer.start_id, "int32")
        is_ended = np.zeros(len(texts), bool)
        for index in range(max_length):
            is_few = len(rows) <= _FEW_ROWS
            step = self._step_few if is_few else self._step_many
            inputs = {"token_ids": last, "index": np.array(index, "int32")}
            logits, *changed = step.run(None, inputs | cache)
            cache.update(zip(changing, changed))
            of_tokens = _log_softmax(logits)
            if given is None:
                logits[:, ~is_token] = -np.inf
                last = logits.argmax(axis=-1).astype("int32")
            else:
                last = given[rows, index + 1]
            found[rows, index] = last
            of_tokens = of_tokens[np.arange(len(rows)), last]
            log_probs[rows] += np.where(is_ended, 0.0, of_tokens)
            is_ended |= last == end_id
            goes_on = ~is_ended
            if not goes_on.any():
                break
            if goes_on.mean() <= _UNFINISHED_SHARE:
                rows, last, is_ended = (
                    each[goes_on] for each in (rows, last, is_ended)
                )
                cache = {name: x[goes_on] for name, x in cache.items()}
        for token_ids, log_prob in zip(found, log_probs):
            yield Answer(self.tokenizer.decode(token_ids), log_prob)

    def _encoded(self, texts):
        """Encodes questions; returns a dict of the tensors of the cache."""
        token_ids = self.tokenizer.encode_batch(texts, questions=True)
        (graph_input,) = self._encode.get_inputs()
        length = graph_input.shape[1]
        # The graph of a recurrent model has a length of its own.
        if isinstance(length, int):
            more = ((0, 0), (0, length - token_ids.shape[1]))
            pad_id = self.tokenizer.pad_id
            token_ids = np.pad(token_ids, more, constant_values=pad_id)
        names = [output.name for output in self._encode.get_outputs()]
        found = self._encode.run(None, {"token_ids": token_ids})
        return dict(zip(names, found))


def _log_softmax(logits):
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
