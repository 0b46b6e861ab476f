r"""Serves a page to ask a trained model.

    python -m experiments.playground \
        --model_dir=saved_models/tp_transformer_mathematics

Open the address that is printed in a browser of this machine: the best answers
to a question with their probabilities, the attention and the roles of the
question, and examples of the modules that the model was trained on. Nothing is
asked of a network. Made with Streamlit: pip install 'tpt_keras[playground]'.
"""

from absl import flags

from tpt_keras.errors import UsageError

from . import _cli

FLAGS = flags.FLAGS

flags.DEFINE_string("model_dir", None, "A model's folder.")
flags.DEFINE_integer("port", 8501, "Port of this machine; 0 for any.")
flags.DEFINE_integer("answers", 5, "Number of answers to show.")


def main():
    if not FLAGS.model_dir:
        raise UsageError("--model_dir is needed.")
    if not 0 <= FLAGS.port < 65536:
        raise UsageError("--port must be from 0 to 65535.")
    if not 0 < FLAGS.answers <= 20:
        raise UsageError("--answers must be from 1 to 20.")
    from tpt_keras.playground.playground import Playground
    from tpt_keras.playground.playground_server import PlaygroundServer

    server = PlaygroundServer(
        Playground(FLAGS.model_dir, FLAGS.answers), FLAGS.port
    )
    print(f"Open {server.address} in a browser. Ctrl-C ends it.", flush=True)
    server.run()


if __name__ == "__main__":
    _cli.run(main)
