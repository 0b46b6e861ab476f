r"""Reconstructs states from one head's values.

    python -m experiments.reconstruct --modules=arithmetic__mixed \
        --data_dir=data --output_dir=reconstruction \
        --model_dir=saved_models/tp_transformer_mathematics

For every head of the encoder (section 6.1 of the paper), fits an affine map
from its values to the states that they are maps of, on --train_characters
characters, and tests it on other problems. Writes reconstruction.json and
reconstruction.png.
"""

import pathlib

from absl import flags

from . import _cli
from . import _flags
from . import _look_inside
from ._problems import Problems

FLAGS = flags.FLAGS

flags.DEFINE_string("model_dir", None, "A model's folder.", required=True)
_flags.define(Problems)
flags.DEFINE_integer(
    "count", 256, "Problems of each module, at most.", lower_bound=1
)
flags.DEFINE_string("output_dir", "reconstruction", "Folder to write.")
flags.DEFINE_integer("seed", 0, "Seed of everything that is random.")
flags.DEFINE_list(
    "train_characters",
    ["100", "4000"],
    "Number of characters to fit on; several are compared.",
)


def _are_sizes(texts):
    texts = [text.strip() for text in texts]
    return bool(texts) and all(t.isdecimal() and int(t) > 1 for t in texts)


flags.register_validator(
    "train_characters", _are_sizes, "give numbers above 1, as in 100,4000"
)


def check():
    _look_inside.require_analysis("matplotlib", "sklearn")


def main():
    sizes = [int(text) for text in FLAGS.train_characters]
    questions, _ = _look_inside.read_problems()
    from tpt_keras.analysis.attention import collect_vectors
    from tpt_keras.analysis.representations import reconstruction_errors
    from tpt_keras.analysis.representations import split_by_text
    from tpt_keras.files import whole_file
    from tpt_keras.visualization.attention import draw_head_tables

    model = _look_inside.load_transformer()
    questions = _look_inside.readable(model, questions)
    lengths = _look_inside.framed_lengths(questions)
    splits = [split_by_text(lengths, size, FLAGS.seed) for size in sizes]
    vectors = collect_vectors(model, "encoder", ["states", "values"], questions)
    states, values = vectors["states"], vectors["values"]
    results, panels = [], {}
    for size, (train, held_out) in zip(sizes, splits):
        layers = [
            reconstruction_errors(*each, train, held_out)
            for each in zip(states.layers, values.layers)
        ]
        results.append(
            {
                "train_characters": size,
                "held_out_characters": len(held_out),
                "layers": layers,
            }
        )
        for name in ("train", "held_out"):
            errors = [
                [error / layer["variance"] for error in layer[name]]
                for layer in layers
            ]
            title = f"{name.replace('_', ' ')}, fitted on {size:,}"
            panels[title] = errors
            mean = sum(map(sum, errors)) / sum(map(len, errors))
            print(f"{title} characters: mean error {mean:.4f} of the variance")
    folder = pathlib.Path(FLAGS.output_dir)
    _look_inside.write_json(folder / "reconstruction.json", results)
    with whole_file(folder / "reconstruction.png") as partial:
        draw_head_tables(panels, "squared error / variance", partial)
    print(folder / "reconstruction.png")


if __name__ == "__main__":
    _cli.run(main, check)
