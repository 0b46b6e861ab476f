import pathlib
import socket

from tpt_keras.errors import UsageError
from tpt_keras.errors import port_taken
from tpt_keras.playground.playground import Playground

_HOST = "localhost"
_PAGE = pathlib.Path(__file__).with_name("page.py")
_SETTINGS = {
    "browser.gatherUsageStats": False,
    "client.toolbarMode": "minimal",
    "server.fileWatcherType": "none",
    # The pages that are shown in it are light.
    "theme.base": "light",
}


class PlaygroundServer:
    """Serves the page of one model on this machine, once in a process.

    Args:
        playground: A `Playground`.
        port: Port of this machine; 0 for any.

    Attributes:
        address: What to open in a browser.

    Raises:
        UsageError: If the port is taken, or Streamlit is not installed.

    Example:

    ```python
    server = PlaygroundServer(Playground("models/demo"))
    print(server.address)
    server.run()
    ```
    """

    def __init__(self, playground, port=8501):
        try:
            import streamlit
            import uvicorn
        except ModuleNotFoundError as error:
            raise UsageError(
                "The page is made with Streamlit, which is not installed. "
                "Install it with: pip install 'tpt_keras[playground]'"
            ) from error
        for name, value in _SETTINGS.items():
            streamlit.config.set_option(name, value)
        Playground.shown = playground
        try:
            self._listener = socket.create_server((_HOST, port), backlog=128)
        except OSError:
            raise port_taken(port, "port") from None
        port = self._listener.getsockname()[1]
        self.address = f"http://{_HOST}:{port}"
        self._server = uvicorn.Server(
            uvicorn.Config(
                streamlit.App(_PAGE),
                log_level="error",
                # The page keeps a connection open.
                timeout_graceful_shutdown=1,
            )
        )

    def run(self):
        """Serves until a signal ends it, which then goes its usual way."""
        with self._listener:
            self._server.run(sockets=[self._listener])
