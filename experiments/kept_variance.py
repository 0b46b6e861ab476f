r"""Measures the variance that binding keeps.

    python -m experiments.kept_variance --modules=arithmetic__mixed \
        --data_dir=data --output_dir=kept_variance \
        --model_dir=saved_models/tp_transformer_mathematics

For every head of the encoder (section 7 of the paper), writes the share of the
variance of the tensor products of fillers and roles that three compressions
keep: the elementwise product, the elementwise product after the best
rotations, and as many principal components. They are fitted on
--train_characters characters and tested on other problems. Writes
kept_variance.json and kept_variance.png.
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
    "count", 128, "Problems of each module, at most.", lower_bound=1
)
flags.DEFINE_string("output_dir", "kept_variance", "Folder to write.")
flags.DEFINE_integer("seed", 0, "Seed of everything that is random.")
flags.DEFINE_integer(
    "train_characters", 1500, "Number of characters to fit on.", lower_bound=2
)

PANELS = {
    "diagonal": "elementwise product",
    "rotated": "best rotations",
    "principal": "principal components",
}


def check():
    _look_inside.require_analysis("matplotlib", "sklearn")


def main():
    questions, _ = _look_inside.read_problems()
    from tpt_keras.analysis.attention import collect_vectors
    from tpt_keras.analysis.representations import kept_variance
    from tpt_keras.analysis.representations import split_by_text
    from tpt_keras.files import whole_file
    from tpt_keras.visualization.attention import draw_head_tables

    model = _look_inside.load_transformer()
    questions = _look_inside.readable(model, questions)
    lengths = _look_inside.framed_lengths(questions)
    split = split_by_text(lengths, FLAGS.train_characters, FLAGS.seed)
    vectors = collect_vectors(model, "encoder", ["roles", "fillers"], questions)
    fillers, roles = vectors["fillers"], vectors["roles"]
    layers = []
    for of_fillers, of_roles in zip(fillers.layers, roles.layers):
        heads = [
            kept_variance(
                of_fillers[:, head], of_roles[:, head], *split, FLAGS.seed
            )
            for head in range(of_roles.shape[1])
        ]
        layers.append(heads)
        means = ", ".join(
            f"{title} {sum(head[name] for head in heads) / len(heads):.1%}"
            for name, title in PANELS.items()
        )
        print(f"layer {len(layers)}, mean over its heads: {means}")
    folder = pathlib.Path(FLAGS.output_dir)
    _look_inside.write_json(folder / "kept_variance.json", {"layers": layers})
    panels = {
        title: [[head[name] for head in heads] for heads in layers]
        for name, title in PANELS.items()
    }
    with whole_file(folder / "kept_variance.png") as partial:
        draw_head_tables(panels, "share of the variance kept", partial)
    print(folder / "kept_variance.png")


if __name__ == "__main__":
    _cli.run(main, check)
