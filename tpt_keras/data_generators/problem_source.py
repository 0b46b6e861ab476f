import numpy as np
from tensorflow_datasets.proto import tf_example_pb2

from tpt_keras.data_generators.record_file import RecordFile


class ProblemSource:
    """Random access to problems that TensorFlow Datasets prepared.

    Records are read from any place: a shuffle over the whole dataset needs
    neither a buffer nor a second copy of the data. No file stays open, and
    threads may share a source.

    Args:
        paths: TFRecord files of examples with the string features `question`
            and `answer`.

    Raises:
        UsageError: If a file is damaged.

    Example:

    ```python
    builder = tfds.builder("math_dataset/numbers__place_value")
    source = ProblemSource(builder.info.splits["train"].filepaths)
    questions, answers = source.read([0, 100, 7])
    ```
    """

    def __init__(self, paths):
        self._files = [RecordFile(path) for path in paths]
        self._starts = np.cumsum([0, *map(len, self._files)])

    def __len__(self):
        return int(self._starts[-1])

    def read(self, indices):
        """Reads problems from any place.

        Args:
            indices: Integer array `(count,)`.

        Returns:
            Arrays of bytes `(count,)`: the questions and the answers.

        Raises:
            UsageError: If a problem's record is damaged.
        """
        indices = np.asarray(indices)
        owners = np.searchsorted(self._starts, indices, "right") - 1
        problems = np.empty((2, len(indices)), dtype=object)
        for owner in np.unique(owners):
            rows = np.flatnonzero(owners == owner)
            records = self._files[owner].read(
                indices[rows] - self._starts[owner]
            )
            for row, record in zip(rows, records):
                features = tf_example_pb2.Example.FromString(record).features
                for part, name in enumerate(("question", "answer")):
                    values = features.feature[name].bytes_list.value
                    problems[part, row] = values[0]
        return tuple(problems)
