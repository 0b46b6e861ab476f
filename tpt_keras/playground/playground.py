"""The playground: a page on this machine that asks one model."""

import functools
import math
import pathlib
import socket
import threading

import numpy as np

from tpt_keras.analysis.attention import attention_weights
from tpt_keras.analysis.attention import collect_vectors
from tpt_keras.analysis.roles import cluster
from tpt_keras.analysis.roles import describe_clusters
from tpt_keras.answer import OK
from tpt_keras.answer import explain
from tpt_keras.data_generators.mathematics.modules import MODULES
from tpt_keras.data_generators.mathematics.shards import draw_shard
from tpt_keras.decoding import BeamSampler
from tpt_keras.decoding import Generator
from tpt_keras.errors import UsageError
from tpt_keras.errors import port_taken
from tpt_keras.errors import require
from tpt_keras.models.load_model import load_model
from tpt_keras.training.model_folder import read_training
from tpt_keras.visualization.roles import role_page

# Packages of the extra `playground`.
PACKAGES = ("matplotlib", "plotly", "sklearn", "streamlit", "uvicorn")
_HOST = "localhost"
_PAGE = pathlib.Path(__file__).with_name("page.py")
_SETTINGS = {
    "browser.gatherUsageStats": False,
    "client.toolbarMode": "minimal",
    "server.fileWatcherType": "none",
    # The pages inside have a light background.
    "theme.base": "light",
}
_EXAMPLES = 3
_MAX_CLUSTERS = 6
# Cached results of each kind. Streamlit runs the page again on every click,
# and the attention of one question is up to 50 MB.
_CACHED = 4


class Playground:
    """The model behind the page, with a small cache of results.

    Streamlit runs each visitor in a thread. A lock lets one thread at a time
    use the model and the random numbers of the problem generator.

    Args:
        model_dir: The model's folder.
        num_answers: Number of answers to show.

    Attributes:
        model_dir: The folder.
        modules: Tuple of the training's modules that have a generator.
        answers: Function from a question to the result of `best_answers`.
        attention: Function from a question and an answer to the result of
            `attention_weights`.
        roles: Function from a question to the roles of the encoder,
            `CharacterVectors`.
        examples: Function from a module and a number to a list of pairs of
            question and answer, different for every number.

    Raises:
        UsageError: If the folder has no model, or a damaged one.
    """

    # The playground of the page, because Streamlit passes no arguments.
    shown = None

    def __init__(self, model_dir, num_answers=5):
        model = load_model(model_dir)
        self.model_dir = str(model_dir)
        self.modules = trained_modules(model_dir)
        lock = threading.Lock()
        generator = Generator(model, BeamSampler(num_answers))
        self.answers = _cached(lock, best_answers, generator)
        self.attention = _cached(lock, attention_weights, model)
        self.roles = _cached(lock, _roles, model)
        self.examples = _cached(lock, _examples)


def _cached(lock, function, *args):
    """Returns a partial function that holds a lock and caches results."""
    cached = functools.lru_cache(_CACHED)(functools.partial(function, *args))

    def call(*args):
        with lock:
            return cached(*args)

    return call


def _examples(module, number):
    return draw_shard(module, "interpolate", number, 0, _EXAMPLES).problems


def _roles(model, question):
    return collect_vectors(model, "encoder", ["roles"], [question])["roles"]


def best_answers(generator, question):
    """Returns the best answers to a question.

    Args:
        generator: A `Generator` with a `BeamSampler`.
        question: A string.

    Returns:
        List of pairs of an answer and its probability, the best first.

    Raises:
        UsageError: If the model cannot read the question.
    """
    [best] = generator.answer([question])
    if best.status != OK:
        config = generator.model.config
        limit = config.max_question_length
        raise UsageError(
            "The question "
            f"{explain(question, best.status, config.vocabulary, limit)}."
        )
    return [
        (answer.text, math.exp(answer.log_prob))
        for answer in (best, *best.alternatives)
    ]


def trained_modules(model_dir):
    """Reads the modules of a model's training.

    Args:
        model_dir: The model's folder.

    Returns:
        Tuple of names of generated modules. It is empty if the folder names
        none, as that of a converted checkpoint.

    Raises:
        UsageError: If the folder's configuration is damaged.
    """
    modules = read_training(model_dir).get("modules", ())
    return tuple(module for module in modules if module in MODULES)


def question_role_page(roles, layer, head):
    """Returns a page of HTML with the clusters of one head's roles.

    Args:
        roles: `CharacterVectors` of one question.
        layer: Number of the layer, from 1.
        head: Number of the head, from 1.

    Returns:
        The page's text.
    """
    vectors = roles.layers[layer - 1][:, head - 1]
    labels = cluster(
        vectors, min(_MAX_CLUSTERS, len(np.unique(vectors, axis=0)))
    )
    return role_page(
        roles.texts,
        roles.by_text(labels.tolist()),
        describe_clusters(labels, roles),
        f"Roles in the question: layer {layer}, head {head}",
        "Characters of one colour have similar roles.",
    )


class PlaygroundServer:
    """A server of a playground's page. A process can have one.

    Args:
        playground: A `Playground`.
        port: Port of this machine; 0 for any.

    Attributes:
        address: Address of the page.

    Raises:
        UsageError: If the port is taken or a package is missing.

    Example:

    ```python
    server = PlaygroundServer(Playground("models/demo"))
    print(server.address)
    server.run()
    ```
    """

    def __init__(self, playground, port=8502):
        for package in PACKAGES:
            require(package, "playground")
        import streamlit
        import uvicorn

        for name, value in _SETTINGS.items():
            streamlit.config.set_option(name, value)
        Playground.shown = playground
        try:
            self._listener = socket.create_server((_HOST, port), backlog=128)
        except OSError as error:
            raise port_taken(port, "port") from error
        port = self._listener.getsockname()[1]
        self.address = f"http://{_HOST}:{port}"
        self._server = uvicorn.Server(
            uvicorn.Config(
                streamlit.App(_PAGE),
                log_level="error",
                # An open page keeps its connection.
                timeout_graceful_shutdown=1,
            )
        )

    def run(self):
        """Serves until a signal ends the process."""
        with self._listener:
            self._server.run(sockets=[self._listener])
