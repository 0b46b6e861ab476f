r"""Draws which characters take from which.

Of the questions of a file, one a line:

    python -m experiments.attention --questions_file=questions.txt \
        --model_dir=saved_models/tp_transformer_mathematics \
        --output_dir=attention

Leaves attention.html, where every attention, layer and head can be chosen and
hovered over; attention.json, the weights; and a picture of one head for every
question, question_1.png and so on. The decoder's are those of the model's own
answer. The page is drawn with plotly: pip install 'tpt_keras[analysis]'.
"""

import json
import pathlib

from absl import flags

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names

from . import _cli

FLAGS = flags.FLAGS

flags.DEFINE_string("model_dir", None, "A model's folder.")
flags.DEFINE_string("questions_file", None, "Text file of questions.")
flags.DEFINE_string("output_dir", "attention", "Folder to write.")
flags.DEFINE_string(
    "attention", "encoder", "What is drawn first: encoder, decoder or cross."
)
flags.DEFINE_integer("layer", None, "Its layer, from 1. Default: the last.")
flags.DEFINE_integer("head", 1, "Its head, from 1.")

# The weights of all heads are a megabyte or two of each.
MAX_QUESTIONS = 50


def main():
    if not FLAGS.model_dir or not FLAGS.questions_file:
        raise UsageError("--model_dir and --questions_file are needed.")
    questions = read_questions()
    import numpy as np

    from tpt_keras.analysis.attention_weights import attention_weights
    from tpt_keras.analysis.cells import layer_and_head
    from tpt_keras.files import whole_file
    from tpt_keras.models.load_model import load_model
    from tpt_keras.models.transformer import Transformer
    from tpt_keras.visualization.attention_maps import ATTENTIONS
    from tpt_keras.visualization.attention_maps import draw_attention
    from tpt_keras.visualization.attention_maps import write_attention_page

    check_names("attention", [FLAGS.attention], ATTENTIONS)
    model = load_model(FLAGS.model_dir, classes=(Transformer,))
    layer, head = layer_and_head(model, FLAGS.layer, FLAGS.head)
    problems = [attention_weights(model, question) for question in questions]
    folder = pathlib.Path(FLAGS.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    shown = {"attention": FLAGS.attention, "layer": layer, "head": head}
    page = folder / "attention.html"
    write_attention_page(problems, shown, page)
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
    """The lines of the file that are not empty."""
    path = pathlib.Path(FLAGS.questions_file)
    if not path.is_file():
        raise UsageError(f"There is no file --questions_file={str(path)!r}.")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"The file {str(path)!r} is not valid text. Write it in UTF-8."
        ) from error
    questions = [line.strip() for line in lines if line.strip()]
    if not 1 <= len(questions) <= MAX_QUESTIONS:
        raise UsageError(
            f"The file {str(path)!r} has {len(questions)} questions. Give it "
            f"from 1 to {MAX_QUESTIONS}, one a line."
        )
    return questions


if __name__ == "__main__":
    _cli.run(main)
