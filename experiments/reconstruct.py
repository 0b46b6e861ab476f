r"""Measures what one head's values tell of a state.

    python -m experiments.reconstruct --modules=arithmetic__mixed \
        --data_dir=data --output_dir=reconstruction \
        --model_dir=saved_models/tp_transformer_mathematics

For every head of the encoder, an affine map from its values to the states that
they are values of is fitted (section 6.1 of the paper), on as many cells as
--train_cells says, and checked with cells of other problems. Leaves
reconstruction.json and reconstruction.png.
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
flags.DEFINE_integer("count", 256, "Problems of each module.")
flags.DEFINE_string("output_dir", "reconstruction", "Folder to write.")
flags.DEFINE_list(
    "train_cells",
    ["100", "4000"],
    "How many cells to fit on; several are compared.",
)
flags.DEFINE_integer("seed", 0, "Seed of which problems are fitted on.")


def main():
    if not FLAGS.model_dir or not FLAGS.modules:
        raise UsageError("--model_dir and --modules are needed.")
    sizes = train_sizes()
    problems = Problems(**_flags.values(Problems)).read(FLAGS.count)
    from tpt_keras.analysis.cells import collect_cells
    from tpt_keras.analysis.reconstruction import reconstruction_errors
    from tpt_keras.analysis.reconstruction import split_by_text
    from tpt_keras.files import whole_file
    from tpt_keras.models.load_model import load_model
    from tpt_keras.models.transformer import Transformer
    from tpt_keras.visualization.head_table import draw_head_tables

    model = load_model(FLAGS.model_dir, classes=(Transformer,))
    questions, _ = all_together(problems)
    cells = collect_cells(model, "encoder", ["states", "values"], questions)
    results, panels = [], {}
    for size in sizes:
        train, held_out = split_by_text(cells["states"].rows, size, FLAGS.seed)
        layers = [
            reconstruction_errors(states, values, train, held_out)
            for states, values in zip(
                cells["states"].layers, cells["values"].layers
            )
        ]
        results.append(
            {
                "train_cells": size,
                "held_out_cells": len(held_out),
                "layers": layers,
            }
        )
        for name in ("train", "held_out"):
            errors = [
                [error / layer["variance"] for error in layer[name]]
                for layer in layers
            ]
            panels[f"{name.replace('_', ' ')}, fitted on {size:,} cells"] = (
                errors
            )
            mean = sum(map(sum, errors)) / sum(map(len, errors))
            print(
                f"fitted on {size:6,} cells, {name:8}: mean squared error "
                f"{mean:.4f} of the variance, over all heads"
            )
    folder = pathlib.Path(FLAGS.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(folder / "reconstruction.json") as partial:
        partial.write_text(json.dumps(results, indent=2))
    with whole_file(folder / "reconstruction.png") as partial:
        draw_head_tables(panels, "squared error / variance", partial)
    print(folder / "reconstruction.png")


def train_sizes():
    """The numbers of --train_cells."""
    sizes = [text.strip() for text in FLAGS.train_cells]
    if not sizes or not all(s.isdecimal() and int(s) > 1 for s in sizes):
        raise UsageError(
            "--train_cells are numbers above 1, such as 100,4000. Received: "
            f"{','.join(FLAGS.train_cells)!r}."
        )
    return [int(size) for size in sizes]


if __name__ == "__main__":
    _cli.run(main)
