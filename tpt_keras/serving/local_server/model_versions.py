import pathlib
import threading

import grpc
from absl import logging
from tensorflow_serving.apis import get_model_status_pb2

from tpt_keras.errors import UsageError
from tpt_keras.errors import command
from tpt_keras.serving.local_server.request_error import RequestError
from tpt_keras.serving.local_server.served_model import ServedModel
from tpt_keras.serving.versions import version_paths

_Status = get_model_status_pb2.ModelVersionStatus


class ModelVersions:
    """The versions of one model, of which the highest answers.

    A new one is loaded while the old one answers, and takes over at once when
    it is there; the requests that run on the old one end on it. One that
    cannot be loaded changes nothing, and is tried again.

    Args:
        name: The model's name.
        folder: Folder of its versions.
        batching: A `Batching`.

    Raises:
        UsageError: If there is no version, or it cannot be loaded.
    """

    def __init__(self, name, folder, batching):
        self.name = name
        self._folder = pathlib.Path(folder)
        self._batching = batching
        self._current = None
        self._statuses = {}
        self._stopped = threading.Event()
        self._poller = None
        self.refresh()
        if self._current is None:
            reasons = [s.status.error_message for s in self._statuses.values()]
            raise UsageError(
                f"No version of a model could be loaded from {str(folder)!r}. "
                f"Name the folder of the versions; {command('export')} makes "
                f"one. {' '.join(reasons)}"
            )

    def refresh(self):
        """Loads the highest version, if it is not there already."""
        paths = version_paths(self._folder)
        number = max(paths, default=None)
        current = self._current
        if number is None or (current and number == current.version):
            return
        is_new = number not in self._statuses
        self._report(number, "LOADING")
        try:
            model = ServedModel(paths[number], self._batching)
        except Exception as error:
            # Anything: there is no end to what a file can be broken by.
            reason = " ".join(str(error).split())[:1000]
            if current and is_new:
                logging.error("Version %d cannot be loaded: %s", number, reason)
            self._report(number, "END", reason or type(error).__name__)
            return
        self._current = model
        self._report(number, "AVAILABLE")
        if current:
            self._report(current.version, "END")
            logging.info("Version %d has taken over.", number)

    def poll(self, seconds):
        """Looks for a new version, again and again, in a thread of its own.

        Args:
            seconds: Time between two looks.
        """

        def look():
            while not self._stopped.wait(seconds):
                try:
                    self.refresh()
                except OSError as error:
                    # Of a disk or a network, which may come back.
                    logging.error("Cannot look for versions: %s", error)

        self._poller = threading.Thread(target=look, daemon=True)
        self._poller.start()

    def stop(self):
        """Ends the looking for new versions."""
        self._stopped.set()
        if self._poller:
            self._poller.join()

    def get(self, model_spec):
        """The version that a request is for.

        Args:
            model_spec: TF Serving's `ModelSpec`.

        Returns:
            A `ServedModel`.

        Raises:
            RequestError: If there is no such model or version.
        """
        current = self._current
        if model_spec.HasField("version_label"):
            raise RequestError.invalid(
                "Unrecognized servable version label: "
                f"{model_spec.version_label}"
            )
        wanted = f"Latest({model_spec.name})"
        is_there = model_spec.name == self.name
        if model_spec.HasField("version"):
            version = model_spec.version.value
            wanted = f"Specific({model_spec.name}, {version})"
            is_there = is_there and version == current.version
        if not is_there:
            raise RequestError(
                grpc.StatusCode.NOT_FOUND,
                f"Servable not found for request: {wanted}",
            )
        return current

    def status(self, model_spec):
        """The states of the versions.

        Args:
            model_spec: TF Serving's `ModelSpec`.

        Returns:
            A `GetModelStatusResponse`.

        Raises:
            RequestError: If there is no such model or version.
        """
        statuses = self._statuses if model_spec.name == self.name else {}
        missing = "any versions"
        if model_spec.HasField("version"):
            version = model_spec.version.value
            statuses = {v: s for v, s in statuses.items() if v == version}
            missing = f"version {version}"
        if not statuses:
            raise RequestError(
                grpc.StatusCode.NOT_FOUND,
                f"Could not find {missing} of model {model_spec.name}",
            )
        return get_model_status_pb2.GetModelStatusResponse(
            model_version_status=[statuses[v] for v in sorted(statuses)]
        )

    def _report(self, number, state, error=""):
        status = _Status(version=number, state=_Status.State.Value(state))
        status.status.error_message = error
        if error:
            status.status.error_code = grpc.StatusCode.UNKNOWN.value[0]
        # Replaced rather than changed, for other threads read it.
        self._statuses = {**self._statuses, number: status}
