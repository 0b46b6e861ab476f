r"""Serves a page that asks a trained model.

    python -m experiments.playground \
        --model_dir=saved_models/tp_transformer_mathematics

Open the printed address in a browser on this machine. The page shows the best
answers to a question with their probabilities, the attention and the roles of
the question, and examples from the modules of the training. It needs no
network. Needs pip install 'tpt_keras[playground]'.
"""

import importlib.util
import os
import sys

from absl import flags

from tpt_keras.errors import require

from . import _cli
from . import _flags

FLAGS = flags.FLAGS

_flags.define_model_dir()
flags.DEFINE_integer(
    "port", 8502, "Port of this machine.", lower_bound=1, upper_bound=65535
)
flags.DEFINE_integer(
    "answers", 5, "Number of answers to show.", lower_bound=1, upper_bound=20
)

SETTINGS = {
    "server.address": "localhost",
    "server.headless": "true",
    "server.fileWatcherType": "none",
    "browser.gatherUsageStats": "false",
    "client.toolbarMode": "minimal",
    # As in the pages inside, `visualization/pages/style.css`.
    "theme.font": "system-ui, sans-serif",
    "theme.light.primaryColor": "#0072b2",
    "theme.light.textColor": "#31333f",
    "theme.light.backgroundColor": "#ffffff",
    "theme.light.secondaryBackgroundColor": "#f0f2f6",
    "theme.dark.primaryColor": "#56b4e9",
    "theme.dark.textColor": "#fafafa",
    "theme.dark.backgroundColor": "#0e1117",
    "theme.dark.secondaryBackgroundColor": "#262730",
}


def check():
    for package in ("matplotlib", "sklearn", "streamlit"):
        require(package, "playground")


def main():
    from tpt_keras.models.load_model import load_model

    # Refuses a folder without a model before the page is served.
    load_model(FLAGS.model_dir)
    page = importlib.util.find_spec("tpt_keras.playground").origin
    settings = {**SETTINGS, "server.port": FLAGS.port}
    arguments = [f"--{name}={value}" for name, value in settings.items()]
    model = ["--", FLAGS.model_dir, str(FLAGS.answers)]
    command = [sys.executable, "-m", "streamlit", "run", page]
    os.execv(sys.executable, [*command, *arguments, *model])


if __name__ == "__main__":
    _cli.run(main, check)
