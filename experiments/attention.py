r"""Draws attention weights.

For the questions of a file, one a line (default: a file of the package):

    python -m experiments.attention --questions_file=questions.txt \
        --model_dir=saved_models/tp_transformer_mathematics \
        --output_dir=attention

Writes attention.html, a page of all attentions, layers and heads;
attention.json, the weights; and a figure of the chosen head for every
question, question_1.png and so on. The decoder reads the model's own answer.
Questions that the model cannot read are left out and named. Needs
pip install 'tpt_keras[analysis]'.
"""

import json
import pathlib

from absl import flags

from tpt_keras.errors import UsageError
from tpt_keras.files import reading

from . import _cli
from . import _look_inside

FLAGS = flags.FLAGS

flags.DEFINE_string("model_dir", None, "A model's folder.", required=True)
flags.DEFINE_string(
    "questions_file",
    "questions.txt",
    "Text file of questions: your own, or questions.txt of the package.",
)
flags.DEFINE_string("output_dir", "attention", "Folder to write.")
flags.DEFINE_enum(
    "attention",
    "encoder",
    ["encoder", "decoder", "cross"],
    "The attention to draw, and to show first on the page.",
)
flags.DEFINE_integer("layer", None, "Its layer, from 1. Default: the last.")
flags.DEFINE_integer("head", 1, "Its head, from 1.")

# The weights of one question take one or two megabytes.
MAX_QUESTIONS = 50


def check():
    _look_inside.require_analysis("matplotlib")
    read_questions()


def main():
    questions = read_questions()
    import numpy as np

    from tpt_keras.analysis.attention import attention_weights
    from tpt_keras.files import whole_file
    from tpt_keras.visualization.attention import ATTENTIONS
    from tpt_keras.visualization.attention import attention_page
    from tpt_keras.visualization.attention import draw_attention
    from tpt_keras.visualization.page import write_page

    model = _look_inside.load_transformer()
    layer, head = _look_inside.layer_and_head(model)
    questions = _look_inside.readable(model, questions)
    problems = [attention_weights(model, question) for question in questions]
    folder = pathlib.Path(FLAGS.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    shown = {"attention": FLAGS.attention, "layer": layer, "head": head}
    page = folder / "attention.html"
    write_page(attention_page(problems, shown), page)
    with whole_file(folder / "attention.json") as partial:
        partial.write_text(json.dumps(problems))
    chosen = ATTENTIONS[FLAGS.attention]
    for number, problem in enumerate(problems, 1):
        characters = problem["characters"]
        with whole_file(folder / f"question_{number}.png") as partial:
            draw_attention(
                np.array(problem["weights"][FLAGS.attention][layer][head]),
                characters[chosen["targets"]],
                characters[chosen["sources"]],
                f"Attention {chosen['title']}, layer {layer + 1}, "
                f"head {head + 1}",
                partial,
            )
    print(page)


def read_questions():
    """Returns the lines of the file that are not empty."""
    path = pathlib.Path(FLAGS.questions_file)
    if not path.exists() and (_cli.CONFIGS / path.name).is_file():
        path = _cli.CONFIGS / path.name
    with reading(path, "Give a text file in UTF-8."):
        lines = path.read_text(encoding="utf-8").splitlines()
    questions = [line.strip() for line in lines if line.strip()]
    if not 1 <= len(questions) <= MAX_QUESTIONS:
        raise UsageError(
            f"The file {str(path)!r} has {len(questions)} questions. Give it "
            f"from 1 to {MAX_QUESTIONS}, one a line."
        )
    return questions


if __name__ == "__main__":
    _cli.run(main, check)
