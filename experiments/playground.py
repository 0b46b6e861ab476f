r"""Serves a page that asks a trained model.

    python -m experiments.playground \
        --model_dir=saved_models/tp_transformer_mathematics

Open the printed address in a browser on this machine. The page shows the best
answers to a question with their probabilities, the attention and the roles of
the question, and examples from the modules of the training. It needs no
network. Needs pip install 'tpt_keras[playground]'.
"""

from absl import flags

from tpt_keras.errors import require

from . import _cli

FLAGS = flags.FLAGS

flags.DEFINE_string("model_dir", None, "A model's folder.", required=True)
flags.DEFINE_integer(
    "port",
    8502,
    "Port of this machine; 0 for any.",
    lower_bound=0,
    upper_bound=65535,
)
flags.DEFINE_integer(
    "answers", 5, "Number of answers to show.", lower_bound=1, upper_bound=20
)


def main():
    for package in ("streamlit", "uvicorn", "plotly", "matplotlib", "sklearn"):
        require(package, "playground")
    from tpt_keras.playground.playground import Playground
    from tpt_keras.playground.playground import PlaygroundServer

    server = PlaygroundServer(
        Playground(FLAGS.model_dir, FLAGS.answers), FLAGS.port
    )
    print(f"Open {server.address} in a browser. Ctrl-C ends it.", flush=True)
    server.run()


if __name__ == "__main__":
    _cli.run(main)
