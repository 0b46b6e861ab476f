"""Client for TF Serving, over REST."""

import base64
import concurrent.futures
import contextlib
import re
import threading
import urllib.parse
from collections.abc import Mapping
from typing import Any
from typing import Self

from tpt_keras.answer import Answer
from tpt_keras.answer import AnsweringModel
from tpt_keras.answer import best_answer
from tpt_keras.answer import to_bytes
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_positive_integer
from tpt_keras.errors import require

_UNAVAILABLE = (502, 503)
_CODES_OF_HTTP = {404: "NOT_FOUND", 504: "DEADLINE_EXCEEDED"}
_CODES_OF_HTTP |= dict.fromkeys(_UNAVAILABLE, "UNAVAILABLE")
_REMEDIES = {
    "UNAVAILABLE": (
        "Start it, wait until it is ready, or change `server`: the usual port "
        "of REST is 8501."
    ),
    "NOT_FOUND": "Change `model_name`.",
    "DEADLINE_EXCEEDED": "Increase `timeout`, or ask fewer questions at once.",
    "MALFORMED": "Change `server`, `model_name` or `headers`.",
}


class ServingError(UsageError):
    """Raised if a server gives no answers.

    Args:
        message: The message.
        code: gRPC's name of the error, `"HTTP 500"`, or `"MALFORMED"` for a
            response without answers.
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class ServedModel(AnsweringModel):
    """Base class of what asks the signatures of an export.

    A subclass defines `_predict`, from a signature's name and a dict of its
    inputs, lists of bytes, to a dict of lists; and `_reading`, a context that
    turns every exception about these into one error.
    """

    def _answer_batch(self, questions):
        return self._ask("n_best", questions=questions)

    def _score_batch(self, questions, answers):
        return self._ask("score", questions=questions, answers=answers)

    def _ask(self, signature, **texts):
        inputs = {name: to_bytes(column) for name, column in texts.items()}
        no_log_probs = [None] * len(texts["questions"])
        # The response of another program may be anything.
        with self._reading():
            outputs = self._predict(signature, inputs)
            # Scores are of the answers that were sent.
            columns = {"log_probs": no_log_probs, **texts, **outputs}
            names = ("questions", "answers", "log_probs", "status")
            rows = zip(*(columns[name] for name in names), strict=True)
            return [_to_answer(*row) for _, *row in rows]


class RestClient(ServedModel):
    """Client for TF Serving over REST, without TensorFlow.

    It retries a request that the server refuses as unavailable.

    Args:
        server: Host and port, or a URL, `"https://example.com/solver"`.
        model_name: Name of the model on the server: `"solver"` for its newest
            version, `"solver/versions/2"`, or `"solver/labels/canary"`.
        timeout: Seconds that a request may take, with its retries.
        batch_size: Most questions of a request, at most the server's own
            limit. More questions are sent in several requests.
        headers: Dict of HTTP headers: `{"Authorization": "Bearer ..."}`.

    Raises:
        UsageError: If an argument is invalid.
        MissingDependencyError: Without the extra `tpt_keras[serving]`.

    Example:

    ```python
    with RestClient("localhost:8501") as client:
        [answer] = client.answer(["What is the tens digit of 31859?"])
    ```
    """

    def __init__(
        self,
        server: str,
        model_name: str = "solver",
        timeout: float = 60.0,
        batch_size: int = 64,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        require("requests", "serving")
        import requests
        import urllib3

        # A socket takes at most 2**31 milliseconds.
        if not 0 < timeout <= 1e6:
            raise UsageError(
                "`timeout` must be positive, and at most a million seconds. "
                f"Received: {timeout}",
                field="timeout",
            )
        check_positive_integer("batch_size", batch_size)
        self.server = server
        self.model_name = model_name
        self.timeout = timeout
        self.batch_size = batch_size
        url = server if "://" in server else f"http://{server}"
        name = urllib.parse.quote(model_name, errors="replace")
        self._url = f"{url.rstrip('/')}/v1/models/{name}:predict"
        retry = urllib3.Retry(
            4,
            read=False,
            other=False,
            status_forcelist=_UNAVAILABLE,
            allowed_methods=None,
            backoff_factor=min(0.1, timeout / 30),  # 14 times, in all
            respect_retry_after_header=False,  # it may be hours
            raise_on_status=False,
        )
        self._session = requests.Session()
        for name, value in (headers or {}).items():
            # A token may come from a file, with its newline.
            self._session.headers[name] = value.strip()
        for scheme in ("http://", "https://"):
            adapter = requests.adapters.HTTPAdapter(max_retries=retry)
            self._session.mount(scheme, adapter)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._session.close()

    @contextlib.contextmanager
    def _reading(self):
        try:
            yield
        except ServingError:
            raise
        except Exception as error:
            raise self._error("MALFORMED", repr(error)) from None

    def _error(self, code, reason):
        reason = " ".join(str(reason).split())[:1000]
        message = (
            f"The server {self.server} gives no answers for the model "
            f"{self.model_name!r} ({code}: {reason}). "
            + _REMEDIES.get(code, "Its log, or a proxy's, may say more.")
        )
        # Without the user and the password of an address.
        return ServingError(re.sub(r"\S*@", "", message), code)

    def _predict(self, signature, inputs):
        import requests

        encoded = {
            key: [{"b64": base64.b64encode(text).decode()} for text in texts]
            for key, texts in inputs.items()
        }
        body = {"signature_name": signature, "inputs": encoded}
        try:
            response = self._post(body)
        except (TimeoutError, requests.Timeout):
            reason = f"{self.timeout} s have passed"
            raise self._error("DEADLINE_EXCEEDED", reason) from None
        except ValueError as error:  # It shows the URL or a header.
            raise self._error("MALFORMED", type(error).__name__) from None
        except requests.RequestException as error:
            raise self._error("UNAVAILABLE", error) from None
        status = response.status_code
        if status != 200:
            code = _CODES_OF_HTTP.get(status, f"HTTP {status}")
            text = response.content[:4000].decode(errors="replace")
            raise self._error(code, f"{status} {response.reason}: {text}")
        return response.json()["outputs"]

    def _post(self, body):
        # A socket's time-out is of each of its waits, so this is a thread's.
        found = concurrent.futures.Future()

        def post():
            try:
                options = {"timeout": self.timeout, "allow_redirects": False}
                response = self._session.post(self._url, json=body, **options)
                found.set_result(response)
            except Exception as error:
                found.set_exception(error)

        threading.Thread(target=post, daemon=True).start()
        return found.result(self.timeout)


def _to_answer(texts, log_probs, status):
    """An `Answer` of one text, or of a list of the best ones."""
    if not isinstance(texts, list):
        texts, log_probs = [texts], [log_probs]
    return best_answer(
        Answer(_to_text(text), log_prob, _to_text(status))
        for text, log_prob in zip(texts, log_probs, strict=True)
    )


def _to_text(value):
    value = value.decode() if isinstance(value, bytes) else value
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value
