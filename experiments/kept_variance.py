r"""Measures what binding keeps of tensor products.

    python -m experiments.kept_variance --modules=arithmetic__mixed \
        --data_dir=data --output_dir=kept_variance \
        --model_dir=saved_models/tp_transformer_mathematics

Of the tensor products of fillers and roles, for every head of the encoder
(section 7 of the paper): the share of their variance that the elementwise
product keeps, as it is and of the best rotations of fillers and roles, and the
share that as many principal components keep. Rotations and components are
fitted on --train_cells and checked with cells of other problems. Leaves
kept_variance.json and kept_variance.png.
"""

import json
import pathlib

from absl import flags

from tpt_keras.errors import UsageError

from . import _cli
from . import _flags
from ._problems import Problems
from ._problems import all_together

FLAGS = flags.FLAGS

flags.DEFINE_string("model_dir", None, "A model's folder.")
_flags.define(Problems)
flags.DEFINE_integer("count", 128, "Problems of each module.")
flags.DEFINE_string("output_dir", "kept_variance", "Folder to write.")
flags.DEFINE_integer("train_cells", 1500, "How many cells to fit on.")
flags.DEFINE_integer(
    "seed", 0, "Seed of which problems are fitted on, and of the rotations."
)

PANELS = {
    "diagonal": "as it is",
    "rotated": "best rotations",
    "principal": "principal components",
}


def main():
    if not FLAGS.model_dir or not FLAGS.modules:
        raise UsageError("--model_dir and --modules are needed.")
    if FLAGS.train_cells < 2:
        raise UsageError("--train_cells must be at least 2.")
    problems = Problems(**_flags.values(Problems)).read(FLAGS.count)
    from tpt_keras.analysis.cells import collect_cells
    from tpt_keras.analysis.kept_variance import kept_variance
    from tpt_keras.analysis.reconstruction import split_by_text
    from tpt_keras.files import whole_file
    from tpt_keras.models.load_model import load_model
    from tpt_keras.models.transformer import Transformer
    from tpt_keras.visualization.head_table import draw_head_tables

    model = load_model(FLAGS.model_dir, classes=(Transformer,))
    questions, _ = all_together(problems)
    cells = collect_cells(model, "encoder", ["roles", "fillers"], questions)
    split = split_by_text(cells["roles"].rows, FLAGS.train_cells, FLAGS.seed)
    layers = []
    for fillers, roles in zip(cells["fillers"].layers, cells["roles"].layers):
        heads = [
            kept_variance(fillers[:, head], roles[:, head], *split, FLAGS.seed)
            for head in range(roles.shape[1])
        ]
        layers.append(heads)
        means = ", ".join(
            f"{title} {sum(head[name] for head in heads) / len(heads):.1%}"
            for name, title in PANELS.items()
        )
        print(f"layer {len(layers)}, mean over its heads: {means}")
    panels = {
        title: [[head[name] for head in heads] for heads in layers]
        for name, title in PANELS.items()
    }
    folder = pathlib.Path(FLAGS.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(folder / "kept_variance.json") as partial:
        partial.write_text(json.dumps({"layers": layers}, indent=2))
    with whole_file(folder / "kept_variance.png") as partial:
        draw_head_tables(panels, "share of the variance kept", partial)
    print(folder / "kept_variance.png")


if __name__ == "__main__":
    _cli.run(main)
