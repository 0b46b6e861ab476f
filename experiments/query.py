"""Asks a model that is served, by TF Serving or by experiments.serve.

    python -m experiments.query --server=localhost:8500 \
        --question="What is the tens digit of 31859?"
"""

import os

from absl import flags

from experiments import _cli
from tpt_keras.errors import UsageError

FLAGS = flags.FLAGS

flags.DEFINE_string("server", None, "Host and port of the server.")
flags.DEFINE_enum("protocol", "grpc", ["grpc", "rest"], "How to ask.")
flags.DEFINE_multi_string("question", [], "A question; may be given again.")
flags.DEFINE_string("model_name", "solver", "The model's name on the server.")
flags.DEFINE_float("timeout", 60.0, "Seconds that a request may take.")

_EXPLANATIONS = {
    "EMPTY": "is empty. Ask something",
    "TOO_LONG": "has more characters than the model takes. Shorten it",
    "UNKNOWN_CHARACTER": (
        "has a character that is not in the model's vocabulary. Leave it out"
    ),
    "INVALID_UTF8": "is not valid text. Encode it in UTF-8",
}


def main():
    if not FLAGS.server or not FLAGS.question:
        raise UsageError("--server and --question are needed.")
    client_class = _client_class()
    with client_class(FLAGS.server, FLAGS.model_name, FLAGS.timeout) as client:
        # As bytes, for what was typed may be no valid text.
        answers = client.answer(list(map(os.fsencode, FLAGS.question)))
    for question, answer in zip(FLAGS.question, answers):
        if answer.status != "OK":
            explanation = _EXPLANATIONS.get(answer.status, "has no answer")
            raise UsageError(
                f"The question {question[:40]!r} {explanation} "
                f"({answer.status})."
            )
        print(answer.answer)


def _client_class():
    if FLAGS.protocol == "grpc":
        from tpt_keras.serving.grpc_client import GrpcClient

        return GrpcClient
    from tpt_keras.serving.rest_client import RestClient

    return RestClient


if __name__ == "__main__":
    _cli.run(main)
