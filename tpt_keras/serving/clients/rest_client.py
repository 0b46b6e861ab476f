import base64
import json
import time
import urllib.parse

import requests
import urllib3

from tpt_keras.serving.clients.client import Client

_CODES = {
    400: "INVALID_ARGUMENT",
    404: "NOT_FOUND",
    413: "RESOURCE_EXHAUSTED",
    429: "RESOURCE_EXHAUSTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
# The last two: a host's name that is none.
_UNREACHABLE = (
    requests.ConnectionError,
    requests.exceptions.InvalidURL,
    urllib3.exceptions.LocationParseError,
)
# Of an answer to 64 questions, which has some thousands.
_MOST_BYTES = 2**26


class RestClient(Client):
    """Asks a TF Serving over REST. Needs no TensorFlow.

    See `Client` for the arguments and methods.

    Example:

    ```python
    with RestClient("localhost:8501") as client:
        [answer] = client.answer(["What is the tens digit of 31859?"])
    ```
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        name = urllib.parse.quote(self.model_name, safe="")
        self._url = f"http://{self.server}/v1/models/{name}"
        self._session = requests.Session()
        self._session.mount(
            "http://",
            requests.adapters.HTTPAdapter(max_retries=_retry(self.retries)),
        )

    def close(self):
        self._session.close()

    def model_status(self):
        content = self._call("GET", self._url)
        try:
            return {
                int(status["version"]): str(status["state"])
                for status in content["model_version_status"]
            }
        except (KeyError, TypeError, ValueError) as error:
            raise self._error("MALFORMED", repr(error)) from None

    def _predict(self, questions):
        # A column for each input and output, which repeats no names.
        inputs = {"questions": list(map(_to_json, questions))}
        content = self._call(
            "POST", f"{self._url}:predict", json={"inputs": inputs}
        )
        outputs = content.get("outputs")
        # The server leaves out the name where there is but one.
        return outputs if isinstance(outputs, dict) else {"outputs": outputs}

    def _call(self, method, url, **kwargs):
        """What a server says to a request: a dict, and no error."""
        try:
            with self._session.request(
                method, url, timeout=self.timeout, stream=True, **kwargs
            ) as response:
                body = self._read(response)
        except requests.Timeout as error:
            raise self._error("DEADLINE_EXCEEDED", error) from None
        except _UNREACHABLE as error:
            raise self._error("UNAVAILABLE", error) from None
        # A body that ends early, redirections without an end, ...
        except requests.RequestException as error:
            raise self._error("MALFORMED", error) from None
        try:
            content = json.loads(body)
        except (RecursionError, ValueError):
            content = {"error": f"{response.reason}, without JSON"}
        if not isinstance(content, dict):
            raise self._error("MALFORMED", "JSON that is no object")
        if not response.ok or "error" in content:
            code = _CODES.get(response.status_code, str(response.status_code))
            error = content.get("error")
            is_text = isinstance(error, str)
            raise self._error(code, error if is_text else response.reason)
        return content

    def _read(self, response):
        """The body of a response, however large and slow it is."""
        deadline = time.monotonic() + self.timeout
        body = bytearray()
        try:
            for chunk in response.iter_content(2**16):
                body += chunk
                if len(body) > _MOST_BYTES:
                    raise self._error(
                        "MALFORMED", f"more than {_MOST_BYTES} bytes"
                    )
                if time.monotonic() > deadline:
                    raise requests.Timeout("its answer has no end")
        except requests.ConnectionError as error:
            # That it stopped to say anything.
            raise requests.Timeout(error) from None
        return bytes(body)


def _to_json(question):
    """A string, or TF Serving's form of bytes that are none."""
    try:
        return question.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(question).decode()}


class _Retry(urllib3.Retry):
    """Retries what could not be connected to, but not what took too long."""

    def increment(self, *args, error=None, **kwargs):
        if isinstance(
            error, urllib3.exceptions.ConnectTimeoutError
        ) and not isinstance(error, urllib3.exceptions.NewConnectionError):
            return urllib3.Retry(connect=0).increment(
                *args, error=error, **kwargs
            )
        return super().increment(*args, error=error, **kwargs)


def _retry(retries):
    return _Retry(
        total=None,
        connect=retries,
        status=retries,
        read=False,
        redirect=False,
        other=False,
        status_forcelist=(502, 503),
        # Asking twice does no harm, whatever the method.
        allowed_methods=None,
        backoff_factor=0.1,
        backoff_max=2.0,
        # The last answer is what the error tells of.
        raise_on_status=False,
        respect_retry_after_header=False,
    )
