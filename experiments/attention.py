r"""Draws attention weights.

    tpt_keras attention --output_dir=attention \
        --model=tp_transformer_mathematics \
        --question="What is (-16856)/1806*(-45)/21?"

Writes attention.html, a page of all attentions, layers and heads;
attention.json, the weights; and a figure of the chosen head for every
question, question_1.png and so on. The decoder reads the model's own answer.
Needs pip install 'tpt_keras[analysis]'.
"""

import json
import pathlib

from absl import flags

from . import _flags

FLAGS = flags.FLAGS
check = _flags.check_analysis

_flags.define_analysis("attention")
_flags.define_head()
flags.DEFINE_multi_string("question", None, "A question", required=True)


def main():
    import numpy as np

    from tpt_keras.analysis.attention import attention_weights
    from tpt_keras.files import write_text
    from tpt_keras.visualization.attention import ATTENTIONS
    from tpt_keras.visualization.attention import attention_page
    from tpt_keras.visualization.attention import draw_attention

    model = _flags.load_transformer()
    layer, head = _flags.layer_and_head(model)
    questions = _flags.readable(model, [(each,) for each in FLAGS.question])
    problems = [attention_weights(model, *each) for each in questions]
    folder = pathlib.Path(FLAGS.output_dir)
    write_text(folder / "attention.json", json.dumps(problems))
    shown = {"attention": FLAGS.attention, "layer": layer, "head": head}
    write_text(folder / "attention.html", attention_page(problems, shown))
    title, targets, sources = ATTENTIONS[FLAGS.attention]
    for number, problem in enumerate(problems, 1):
        draw_attention(
            np.array(problem["weights"][FLAGS.attention][layer][head]),
            problem["characters"][targets],
            problem["characters"][sources],
            f"Attention {title}, layer {layer + 1}, head {head + 1}",
            folder / f"question_{number}.png",
        )
    print(folder / "attention.html")
