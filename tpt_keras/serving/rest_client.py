import base64
import urllib.parse

import requests
import urllib3

from tpt_keras.serving.client import Client

_CODES = {
    400: "INVALID_ARGUMENT",
    404: "NOT_FOUND",
    413: "RESOURCE_EXHAUSTED",
    429: "RESOURCE_EXHAUSTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


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
        response = self._call("GET", self._url)
        return {
            int(status["version"]): status["state"]
            for status in response["model_version_status"]
        }

    def _predict(self, questions):
        # A column for each input and output, which repeats no names.
        inputs = {"questions": list(map(_to_json, questions))}
        response = self._call(
            "POST", f"{self._url}:predict", json={"inputs": inputs}
        )
        outputs = response["outputs"]
        # The server leaves out the name where there is but one.
        return outputs if isinstance(outputs, dict) else {"outputs": outputs}

    def _call(self, method, url, **kwargs):
        try:
            response = self._session.request(
                method, url, timeout=self.timeout, **kwargs
            )
        except requests.Timeout as error:
            raise self._error("DEADLINE_EXCEEDED", str(error)) from None
        except requests.ConnectionError as error:
            raise self._error("UNAVAILABLE", str(error)) from None
        try:
            content = response.json()
        except requests.JSONDecodeError:
            content = {"error": f"{response.reason}, without JSON"}
        if not response.ok or "error" in content:
            code = _CODES.get(response.status_code, str(response.status_code))
            raise self._error(code, content.get("error", response.reason))
        return content


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
