r"""Asks a model that is served.

By TF Serving or by python -m experiments.serve:

    python -m experiments.query --server=localhost:8500 \
        --question="What is the tens digit of 31859?"

Prints a line for every question. It is empty for one that has no answer, which
is named at the end, on standard error.
"""

import os

from absl import flags

from tpt_keras.errors import UsageError

from . import _cli
from ._answers import print_answers

FLAGS = flags.FLAGS

flags.DEFINE_string("server", None, "Host and port of the server.")
flags.DEFINE_enum("protocol", "grpc", ["grpc", "rest"], "How to ask.")
flags.DEFINE_multi_string("question", [], "A question; may be given again.")
flags.DEFINE_string("model_name", "solver", "The model's name on the server.")
flags.DEFINE_float("timeout", 60.0, "Seconds that a request may take.")


def main():
    if not FLAGS.server or not FLAGS.question:
        raise UsageError("--server and --question are needed.")
    # Each imports what it needs when it is named: REST no TensorFlow.
    from tpt_keras import serving

    is_grpc = FLAGS.protocol == "grpc"
    client_class = serving.GrpcClient if is_grpc else serving.RestClient
    with client_class(FLAGS.server, FLAGS.model_name, FLAGS.timeout) as client:
        # As bytes, for what was typed may be no valid text.
        answers = client.answer(list(map(os.fsencode, FLAGS.question)))
    print_answers(FLAGS.question, answers)


if __name__ == "__main__":
    _cli.run(main)
