r"""Draws attention weights.

    tpt_keras attention --output_dir=attention \
        --model_dir=saved_models/tp_transformer_mathematics \
        --question="What is (-16856)/1806*(-45)/21?"

Writes attention.html, a page of all attentions, layers and heads;
attention.json, the weights; and a figure of the chosen head for every
question, question_1.png and so on. The decoder reads the model's own answer.
Needs pip install 'tpt_keras[analysis]'.
"""

import json
import pathlib

from absl import flags

from tpt_keras.errors import require

from . import _cli
from . import _look_inside

FLAGS = flags.FLAGS

_look_inside.define_flags("attention")
_look_inside.define_head()
flags.DEFINE_multi_string("question", None, "A question", required=True)


def check():
    require("matplotlib", "analysis")


def main():
    import numpy as np

    from tpt_keras.analysis.attention import attention_weights
    from tpt_keras.files import whole_file
    from tpt_keras.files import write_text
    from tpt_keras.visualization.attention import ATTENTIONS
    from tpt_keras.visualization.attention import attention_page
    from tpt_keras.visualization.attention import draw_attention

    model = _look_inside.load_transformer()
    layer, head = _look_inside.layer_and_head(model)
    questions = [(question,) for question in FLAGS.question]
    problems = [
        attention_weights(model, question)
        for (question,) in _look_inside.readable(model, questions)
    ]
    folder = pathlib.Path(FLAGS.output_dir)
    write_text(folder / "attention.json", json.dumps(problems))
    shown = {"attention": FLAGS.attention, "layer": layer, "head": head}
    write_text(folder / "attention.html", attention_page(problems, shown))
    title, targets, sources = ATTENTIONS[FLAGS.attention]
    for number, problem in enumerate(problems, 1):
        with whole_file(folder / f"question_{number}.png") as partial:
            draw_attention(
                np.array(problem["weights"][FLAGS.attention][layer][head]),
                problem["characters"][targets],
                problem["characters"][sources],
                f"Attention {title}, layer {layer + 1}, head {head + 1}",
                partial,
            )
    print(folder / "attention.html")


if __name__ == "__main__":
    _cli.run(main, check)
