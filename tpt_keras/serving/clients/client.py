import abc

from tpt_keras.errors import UsageError
from tpt_keras.errors import command
from tpt_keras.serving.clients.answer import Answer
from tpt_keras.serving.clients.answer import finite_or_none
from tpt_keras.serving.clients.answerer import Answerer
from tpt_keras.serving.clients.serving_error import ServingError

# More attempts than five are five to gRPC.
_MOST_RETRIES = 4
# More are too many for the system's clocks.
_MOST_SECONDS = 10**6
# Of what a server said, in an error.
_MOST_CHARACTERS = 1000


class Client(Answerer):
    """What the clients of both protocols have in common.

    Only what is known to have reached no model is tried again: when the server
    cannot be connected to, or says that it is unavailable. The delays between
    attempts double.

    Args:
        server: Host and port: `"localhost:8500"`.
        model_name: The name that the model has on the server.
        timeout: Seconds that a request may take, at most a million. Over REST,
            every attempt.
        max_batch_size: Most questions in a request; there are as many requests
            as it takes. Not more than the server's own limit.
        retries: How often to try again, at most 4.

    Raises:
        UsageError: If an argument makes no sense.
    """

    def __init__(
        self,
        server,
        model_name="solver",
        timeout=60.0,
        max_batch_size=64,
        retries=_MOST_RETRIES,
    ):
        host, _, port = server.rpartition(":")
        if not host or not port.isdecimal() or "/" in host:
            raise UsageError(
                f"The server {server!r} must be a host and a port, as in "
                "localhost:8500."
            )
        if not 0 < timeout <= _MOST_SECONDS:
            raise UsageError(
                f"timeout must be positive, and at most {_MOST_SECONDS} "
                f"seconds, not {timeout}."
            )
        if max_batch_size <= 0:
            raise UsageError(
                f"max_batch_size must be positive, not {max_batch_size}."
            )
        if not 0 <= retries <= _MOST_RETRIES:
            raise UsageError(
                f"retries must be from 0 to {_MOST_RETRIES}, not {retries}."
            )
        self.server = server
        self.model_name = model_name
        self.timeout = timeout
        self.max_batch_size = max_batch_size
        self.retries = retries

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    @abc.abstractmethod
    def close(self):
        """Closes the connection."""

    @abc.abstractmethod
    def model_status(self):
        """Asks for the versions of the model.

        Returns:
            Dict of version numbers to the names of their states, for instance
            `{1: "END", 2: "AVAILABLE"}`.

        Raises:
            ServingError: If the server does not say.
        """

    def is_ready(self):
        """Whether the server can be asked questions."""
        try:
            return "AVAILABLE" in self.model_status().values()
        except ServingError:
            return False

    def _answer_batch(self, questions):
        return self._answers(self._predict(questions), len(questions))

    @abc.abstractmethod
    def _predict(self, questions):
        """The signature's outputs, dict of names to lists, for some bytes."""

    def _answers(self, outputs, count):
        if not {"answers", "status"} <= set(outputs):
            raise ServingError(
                f"The model {self.model_name!r} of the server {self.server} "
                f"gives {_shorten(', '.join(sorted(outputs)))}, not answers "
                "and status: it is none of this project's. Name another with "
                "--model_name."
            )
        columns = [
            outputs["answers"],
            outputs.get("log_probs", [None] * count),
            outputs["status"],
        ]
        if not all(isinstance(c, list) and len(c) == count for c in columns):
            raise self._error("MALFORMED", f"not {count} answers")
        try:
            return [
                Answer(_string(answer), finite_or_none(number), _string(status))
                for answer, number, status in zip(*columns)
            ]
        except (OverflowError, TypeError) as error:
            raise self._error("MALFORMED", error) from None

    def _error(self, code, details):
        """What to raise.

        Args:
            code: gRPC's name of what went wrong, which REST's can be told by;
                or `"MALFORMED"` for what no TF Serving says.
            details: What was said about it.

        Returns:
            A `ServingError`.
        """
        details = _shorten(details)
        if "batch size" in details:
            # Told by its text, for its code is that of any wrong input.
            code = "RESOURCE_EXHAUSTED"
        problem, way_out = {
            "UNAVAILABLE": (
                "cannot be reached",
                f"Start one with {command('serve')}, or name another "
                "with --server; gRPC is usually at port 8500, REST at 8501.",
            ),
            "NOT_FOUND": (
                f"has no model {self.model_name!r}",
                "Name another with --model_name.",
            ),
            "DEADLINE_EXCEEDED": (
                f"did not answer within {self.timeout:g} seconds",
                "Raise --timeout, or ask fewer questions at once.",
            ),
            "RESOURCE_EXHAUSTED": (
                "takes no request of this size",
                f"Ask fewer than {self.max_batch_size} questions at once "
                "(max_batch_size).",
            ),
            "MALFORMED": (
                "answers as no TF Serving does",
                "Name another with --server.",
            ),
            "FAILED_PRECONDITION": (
                f"cannot ask the model {self.model_name!r}",
                f"Export it anew with {command('export')}.",
            ),
        }.get(code, (f"failed with {code}", "Its log may say more."))
        return ServingError(
            f"The server {self.server} {problem}. {way_out} It was said: "
            f"{details}"
        )


def _string(value):
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} in place of a string")
    return value


def _shorten(details):
    """One line of what somebody else said."""
    return " ".join(str(details).split())[:_MOST_CHARACTERS]
