"""The playground: a page on this machine that asks one model.

`python -m experiments.playground` starts it with Streamlit, which runs this
file again on every click. Its arguments are the model's folder and the number
of answers.
"""

import contextlib
import math
import re
import sys

import numpy as np
import streamlit as st

from tpt_keras.analysis.attention import attention_weights
from tpt_keras.analysis.attention import collect_vectors
from tpt_keras.analysis.attention import encode_questions
from tpt_keras.analysis.representations import cluster
from tpt_keras.analysis.representations import describe_clusters
from tpt_keras.data_generators.mathematics.modules import MODULES
from tpt_keras.data_generators.mathematics.shards import generate_shard
from tpt_keras.decoding import BeamSampler
from tpt_keras.decoding import Generator
from tpt_keras.errors import UsageError
from tpt_keras.models.load_model import load_model
from tpt_keras.training.state.model_folder import read_training
from tpt_keras.visualization.attention import ATTENTIONS
from tpt_keras.visualization.attention import attention_page
from tpt_keras.visualization.roles import role_page

_EXAMPLES = 3
_MAX_CLUSTERS = 6
# Cached results of each kind. The attention of a question is up to 50 MB.
_CACHED = 4


@st.cache_resource(max_entries=1, show_spinner="Loading the model")
def load(model_dir, num_answers):
    model = load_model(model_dir)
    return model, Generator(model, BeamSampler(num_answers))


@st.cache_data(max_entries=_CACHED, show_spinner="Drawing problems")
def examples(module, number):
    return generate_shard(module, "interpolate", number, 0, _EXAMPLES).problems


@st.cache_data(
    max_entries=_CACHED,
    show_spinner="Answering; the first answer takes longer",
)
def best_answers(model, question):
    """Returns pairs of an answer and its probability, the best first."""
    model, generator = load(*model)
    encode_questions(model, [question])  # refuses what it cannot read
    [best] = generator.answer([question])
    return [
        (answer.text, math.exp(answer.log_prob))
        for answer in (best, *best.alternatives)
    ]


# As a resource, which is not copied.
@st.cache_resource(max_entries=_CACHED, show_spinner="Computing the attention")
def attention(model, question, answer):
    return attention_weights(load(*model)[0], question, answer)


@st.cache_data(max_entries=_CACHED, show_spinner="Computing the roles")
def roles(model, question):
    texts, vectors = collect_vectors(
        load(*model)[0], "encoder", ["roles"], [question]
    )
    return texts, vectors["roles"]


def main():
    model = sys.argv[1], int(sys.argv[2])
    st.set_page_config(page_title="Playground", layout="wide")
    st.title("Ask the model")
    st.caption(_plain(model[0]))
    with st.form("ask", border=False):
        st.text_input("Question", key="question")
        st.form_submit_button("Ask", on_click=_ask_typed)
    with st.sidebar, _errors_in(st.error):
        _show_examples(read_training(model[0]).get("modules", ()))
    if "asked" in st.session_state:
        with _errors_in(st.error):
            _show_answers(model, *st.session_state.asked)


def _ask_typed():
    _ask(st.session_state.question.strip())


def _ask(question, right_answer=None):
    st.session_state.question = question
    st.session_state.asked = question, right_answer


def _show_examples(modules):
    st.header("Examples")
    modules = [module for module in modules if module in MODULES]
    if not modules:
        st.info(
            "The model's folder names no modules of its training, so there "
            "are no examples. Ask a question of your own."
        )
        return
    module = st.selectbox("Module", modules)
    number = st.session_state.get("number", 0) + st.button("Others")
    st.session_state.number = number
    for place, problem in enumerate(examples(module, number)):
        st.button(
            _plain(problem[0]),
            key=f"example_{place}",
            on_click=_ask,
            args=problem,
            width="stretch",
        )


def _show_answers(model, question, right_answer):
    answers = best_answers(model, question)
    left, right = st.columns([1, 3], gap="medium")
    with left:
        st.markdown(f"**{_plain(question)}**")
        for answer, probability in answers:
            # Rounding can give a probability above 1.
            st.progress(
                min(probability, 1.0),
                f"{_plain(answer) or '(nothing)'} ({probability * 100:.3g}%)",
            )
        if right_answer is not None:
            st.caption(f"The right answer: {_plain(right_answer)}")
    attention_tab, roles_tab = right.tabs(["Attention", "Roles"])
    with attention_tab, _errors_in(st.info):
        _show_attention(attention(model, question, answers[0][0]))
    with roles_tab, _errors_in(st.info):
        _show_roles(*roles(model, question))


def _show_attention(problem):
    place, *places = st.columns([2, 1, 1])
    name = place.selectbox(
        "Attention", ATTENTIONS, format_func=lambda name: ATTENTIONS[name][0]
    )
    weights = problem["weights"][name]
    layer, head = _choose_head(
        places, len(weights), len(weights[0]), "attention"
    )
    weights = {name: [[weights[layer][head]]]}
    shown = {"attention": name, "layer": 0, "head": 0}
    st.iframe(
        attention_page(
            [{**problem, "weights": weights}], shown, st.context.theme.type
        )
    )


def _choose_head(places, num_layers, num_heads, key):
    """Shows the choice of a layer and a head, and returns their indices."""
    layer = places[0].selectbox(
        "Layer", range(1, num_layers + 1), num_layers - 1, key=f"layer_{key}"
    )
    head = places[1].selectbox(
        "Head", range(1, num_heads + 1), key=f"head_{key}"
    )
    return layer - 1, head - 1


def _show_roles(texts, layers):
    layer, head = _choose_head(
        st.columns(2), len(layers), layers[0].shape[1], "roles"
    )
    vectors = layers[layer][:, head]
    labels = cluster(
        vectors, min(_MAX_CLUSTERS, len(np.unique(vectors, axis=0)))
    )
    page = role_page(
        texts,
        [labels.tolist()],
        describe_clusters(labels, texts),
        f"Roles in the question: layer {layer + 1}, head {head + 1}",
        "Characters of one colour have similar roles.",
        st.context.theme.type,
    )
    st.iframe(page)


@contextlib.contextmanager
def _errors_in(show):
    """Shows a `UsageError` with `st.error` or `st.info`."""
    try:
        yield
    except UsageError as error:
        show(_plain(str(error)))


def _plain(text):
    """Escapes a text for Markdown."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text)


if __name__ == "__main__":
    main()
