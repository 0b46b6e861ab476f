r"""Asks a model on TF Serving.

    python -m experiments.query --server=localhost:8500 \
        --question="What is the tens digit of 31859?"

Prints a line for every question. The line of a question without an answer is
empty; a message on standard error names these questions.
"""

import os

from absl import flags

from tpt_keras.errors import UsageError
from tpt_keras.serving.client import check_address

from . import _cli
from ._answers import print_answers

FLAGS = flags.FLAGS

flags.DEFINE_string(
    "server", None, "Host and port of the server; for REST also a URL."
)
flags.DEFINE_enum(
    "protocol",
    None,
    ["grpc", "rest"],
    "Protocol. Default: rest for a URL, otherwise grpc.",
)
flags.DEFINE_multi_string("question", [], "A question; may be repeated.")
flags.DEFINE_string("model_name", "solver", "The model's name on the server.")
flags.DEFINE_float("timeout", 60.0, "Seconds that a request may take.")


@flags.multi_flags_validator(["server", "protocol", "question"])
def _check(values):
    """Refuses flags that cannot work before TensorFlow is imported."""
    if not values["server"] or not values["question"]:
        raise flags.ValidationError("--server and --question are needed.")
    try:
        check_address(values["server"], _protocol(**values))
    except UsageError as error:
        raise flags.ValidationError(str(error)) from None
    return True


def _protocol(server, protocol, **_):
    return protocol or ("rest" if "://" in server else "grpc")


def main():
    from tpt_keras import serving

    protocol = _protocol(FLAGS.server, FLAGS.protocol)
    clients = {"grpc": serving.GrpcClient, "rest": serving.RestClient}
    with clients[protocol](
        FLAGS.server, FLAGS.model_name, FLAGS.timeout
    ) as client:
        # As bytes, because an argument may be invalid UTF-8.
        answers = client.answer([os.fsencode(q) for q in FLAGS.question])
    print_answers(FLAGS.question, answers)


if __name__ == "__main__":
    _cli.run(main)
