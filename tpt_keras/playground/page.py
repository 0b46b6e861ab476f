"""The playground's page, a script that Streamlit runs on every click."""

import contextlib
import re

import streamlit as st

from tpt_keras.errors import UsageError
from tpt_keras.playground.playground import Playground
from tpt_keras.playground.playground import question_role_page
from tpt_keras.visualization.attention import attention_page

# Pixels. A larger page scrolls.
_ATTENTION_HEIGHT = 900


def main():
    playground = Playground.shown
    st.set_page_config(page_title="Playground", layout="wide")
    st.title("Ask the model")
    st.caption(_plain(playground.model_dir))
    with st.form("ask", border=False):
        st.text_input("Question", key="question")
        st.form_submit_button("Ask", on_click=_ask_typed)
    with st.sidebar, _errors_in(st.error):
        _show_examples(playground)
    if "asked" in st.session_state:
        with _errors_in(st.error):
            _show_answers(playground, *st.session_state.asked)


def _ask_typed():
    _ask(st.session_state.question.strip())


def _ask(question, right_answer=None):
    st.session_state.question = question
    st.session_state.asked = question, right_answer


def _show_examples(playground):
    st.header("Examples")
    if not playground.modules:
        st.info(
            "The model's folder names no modules of its training, so there "
            "are no examples. Ask a question of your own."
        )
        return
    module = st.selectbox("Module", playground.modules)
    number = st.session_state.setdefault("examples", 0)
    with st.spinner("Drawing problems"):
        problems = playground.examples(module, number)
    for place, problem in enumerate(problems):
        st.button(
            _plain(problem[0]),
            key=f"example_{place}",
            on_click=_ask,
            args=problem,
            width="stretch",
        )
    st.button("Others", on_click=_draw_others)


def _draw_others():
    st.session_state.examples += 1


def _show_answers(playground, question, right_answer):
    with st.spinner("Answering; the first answers take longer"):
        answers = playground.answers(question)
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
    best_answer, _ = answers[0]
    attention, roles = right.tabs(["Attention", "Roles"])
    with attention, _errors_in(st.info):
        _show_attention(playground, question, best_answer)
    with roles, _errors_in(st.info):
        _show_roles(playground, question)


def _show_attention(playground, question, answer):
    with st.spinner("Computing the attention"):
        problem = playground.attention(question, answer)
    last = len(problem["weights"]["encoder"]) - 1
    shown = {"attention": "encoder", "layer": last, "head": 0}
    st.iframe(attention_page([problem], shown), height=_ATTENTION_HEIGHT)


def _show_roles(playground, question):
    with st.spinner("Computing the roles"):
        roles = playground.roles(question)
    num_layers, num_heads = len(roles.layers), roles.layers[0].shape[1]
    left, right = st.columns(2)
    layer = left.selectbox(
        "Layer", range(1, num_layers + 1), index=num_layers - 1
    )
    head = right.selectbox("Head", range(1, num_heads + 1))
    st.iframe(question_role_page(roles, layer, head))


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
