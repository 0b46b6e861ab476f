r"""Serves a page that asks a trained model.

    tpt_keras playground --model=models/demo

Without --model it asks the trained solver. Open the printed address in a
browser on this machine. The page shows the best answers to a question with
their probabilities, and the attention and the roles of the question. It needs
no network. Needs pip install 'tpt_keras[playground]'.
"""

import contextlib
import math
import os
import re
import sys

from absl import flags

from tpt_keras.errors import UsageError
from tpt_keras.errors import require

FLAGS = flags.FLAGS
OPTIONS = (
    "--server.address=localhost",
    "--server.headless=true",
    "--server.fileWatcherType=none",
    "--browser.gatherUsageStats=false",
    "--client.toolbarMode=viewer",
)

if __package__:
    from . import _flags

    _flags.define_model(default=_flags.SOLVER)
    # Streamlit's own default, 8501, is TF Serving's port of REST.
    flags.DEFINE_integer("port", 8600, "Port of the page.")
else:  # Streamlit runs this file alone, again for every click
    import streamlit as st


def check():
    for package in ("matplotlib", "sklearn", "streamlit"):
        require(package, "playground")


def main():
    from tpt_keras.models.stored import load_model

    # Refuses a folder without a model before the page is served.
    load_model(FLAGS.model)
    command = [sys.executable, "-m", "streamlit", "run", *OPTIONS]
    command += [f"--server.port={FLAGS.port}", __file__, "--", FLAGS.model]
    os.execv(sys.executable, command)


def show_page(name):
    st.set_page_config(page_title="Playground", layout="wide")
    st.title("Ask the model")
    st.caption(plain(name))
    question = st.text_input("Question", placeholder="Sort 3, -2, 15, 0.")
    question = question.strip()
    with errors_in(st.error):
        generator = st.cache_resource(load)(name)
        if question:
            best = show_answers(generator, question)
            attention_tab, roles_tab = st.tabs(["Attention", "Roles"])
            with attention_tab, errors_in(st.info):
                show_attention(generator.model, question, best)
            with roles_tab, errors_in(st.info):
                show_roles(generator.model, question)


def load(name):
    from tpt_keras.decoding import BeamSampler
    from tpt_keras.decoding import Generator
    from tpt_keras.models.stored import load_model

    return Generator(load_model(name), BeamSampler(5))


def show_answers(generator, question):
    from tpt_keras.analysis.attention import encode_questions

    encode_questions(generator.model, [question])  # or it is refused
    [best] = generator.answer([question])
    for answer in (best, *best.alternatives):
        # Rounding can give a probability above 1.
        probability = min(math.exp(answer.log_prob), 1.0)
        text = plain(answer.text) or "(nothing)"
        st.progress(probability, f"{text} ({100 * probability:.3g}%)")
    return best.text


def show_attention(model, question, answer):
    from tpt_keras.analysis.attention import attention_weights
    from tpt_keras.visualization.attention import attention_page

    problem = attention_weights(model, question, answer)
    last_layer = len(problem["weights"]["encoder"]) - 1
    shown = {"attention": "encoder", "layer": last_layer, "head": 0}
    st.iframe(attention_page([problem], shown))


def show_roles(model, question):
    import numpy as np

    from tpt_keras.analysis.attention import collect_vectors
    from tpt_keras.analysis.representations import cluster
    from tpt_keras.analysis.representations import describe_clusters
    from tpt_keras.visualization.roles import role_page

    texts, vectors = collect_vectors(model, "encoder", ["roles"], [question])
    layers = vectors["roles"]
    num_heads = layers[0].shape[1]
    layer = st.selectbox("Layer", range(1, len(layers) + 1), len(layers) - 1)
    head = st.selectbox("Head", range(1, num_heads + 1))
    of_head = layers[layer - 1][:, head - 1]
    labels = cluster(of_head, min(6, len(np.unique(of_head, axis=0))))
    clusters = describe_clusters(labels, texts)
    title = f"Roles in the question: layer {layer}, head {head}"
    caption = "Characters of one colour have similar roles."
    st.iframe(role_page(texts, [labels.tolist()], clusters, title, caption))


@contextlib.contextmanager
def errors_in(show):
    """Shows a `UsageError` with `st.error` or `st.info`."""
    try:
        yield
    except UsageError as error:
        show(plain(str(error)))


def plain(text):
    """Escapes a text for Markdown."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text)


if not __package__:
    show_page(sys.argv[1])
