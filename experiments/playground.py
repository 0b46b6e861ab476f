r"""Serves a page that asks a trained model.

    tpt_keras playground --model_dir=models/demo

Without --model_dir it asks the trained solver. Open the printed address in a
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

if __package__:
    from . import _flags

    _flags.define_model_dir(default=_flags.SOLVER)
    flags.DEFINE_integer(
        "port", 8502, "Port of this machine.", lower_bound=1, upper_bound=65535
    )
    flags.DEFINE_integer(
        "answers", 5, "Number of answers.", lower_bound=1, upper_bound=20
    )
else:  # Streamlit runs this file alone, again for every click
    import streamlit as st


def check():
    for package in ("matplotlib", "sklearn", "streamlit"):
        require(package, "playground")


def main():
    from tpt_keras.models.stored import load_model

    # Refuses a folder without a model before the page is served.
    load_model(FLAGS.model_dir)
    settings = {
        "server.address": "localhost",
        "server.port": FLAGS.port,
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": "false",
    }
    options = [f"--{name}={value}" for name, value in settings.items()]
    command = [sys.executable, "-m", "streamlit", "run", *options, __file__]
    model = ["--", FLAGS.model_dir, str(FLAGS.answers)]
    os.execv(sys.executable, [*command, *model])


def show_page(model_dir, num_answers):
    st.set_page_config(page_title="Playground", layout="wide")
    st.title("Ask the model")
    st.caption(plain(model_dir))
    question = st.text_input("Question", placeholder="Sort 3, -2, 15, 0.")
    with errors_in(st.error):
        generator = cached(load)(model_dir, num_answers)
        if question.strip():
            show_answers(generator, question.strip())


def show_answers(generator, question):
    answers = cached(best_answers)(generator, question)
    for answer in answers:
        # Rounding can give a probability above 1.
        probability = min(math.exp(answer.log_prob), 1.0)
        text = plain(answer.text) or "(nothing)"
        st.progress(probability, f"{text} ({100 * probability:.3g}%)")
    attention_tab, roles_tab = st.tabs(["Attention", "Roles"])
    with attention_tab, errors_in(st.info):
        st.iframe(cached(attention)(generator, question, answers[0].text))
    with roles_tab, errors_in(st.info):
        show_roles(*cached(roles)(generator, question))


def show_roles(texts, layers):
    import numpy as np

    from tpt_keras.analysis.representations import cluster
    from tpt_keras.analysis.representations import describe_clusters
    from tpt_keras.visualization.roles import role_page

    num_heads = layers[0].shape[1]
    layer = st.selectbox("Layer", range(1, len(layers) + 1), len(layers) - 1)
    head = st.selectbox("Head", range(1, num_heads + 1))
    vectors = layers[layer - 1][:, head - 1]
    labels = cluster(vectors, min(6, len(np.unique(vectors, axis=0))))
    page = role_page(
        texts,
        [labels.tolist()],
        describe_clusters(labels, texts),
        f"Roles in the question: layer {layer}, head {head}",
        "Characters of one colour have similar roles.",
    )
    st.iframe(page)


def cached(function):
    """Keeps the last results of a function; those of a question are large."""
    return st.cache_resource(max_entries=4)(function)


def load(model_dir, num_answers):
    from tpt_keras.decoding import BeamSampler
    from tpt_keras.decoding import Generator
    from tpt_keras.models.stored import load_model

    return Generator(load_model(model_dir), BeamSampler(num_answers))


# Streamlit leaves arguments with an underscore out of the keys of its caches.
def best_answers(_generator, question):
    from tpt_keras.analysis.attention import encode_questions

    encode_questions(_generator.model, [question])  # or it is refused
    [best] = _generator.answer([question])
    return [best, *best.alternatives]


def attention(_generator, question, answer):
    from tpt_keras.analysis.attention import attention_weights
    from tpt_keras.visualization.attention import attention_page

    problem = attention_weights(_generator.model, question, answer)
    last_layer = len(problem["weights"]["encoder"]) - 1
    shown = {"attention": "encoder", "layer": last_layer, "head": 0}
    return attention_page([problem], shown)


def roles(_generator, question):
    from tpt_keras.analysis.attention import collect_vectors

    texts, vectors = collect_vectors(
        _generator.model, "encoder", ["roles"], [question]
    )
    return texts, vectors["roles"]


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
    show_page(sys.argv[1], int(sys.argv[2]))
