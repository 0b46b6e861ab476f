r"""Clusters a head's roles, and draws them.

    python -m experiments.roles --modules=arithmetic__mixed --data_dir=data \
        --model_dir=saved_models/tp_transformer_mathematics \
        --output_dir=roles

Leaves roles.html and roles.png, problems with every character on a square in
its cluster's colour, and roles.json: the clusters, what they are mostly of, and
how well they tell a character, and the digit of a numerator from that of a
denominator (adjusted mutual information, of shuffled clusters too). A model
without roles has values to cluster (--of=values).
"""

import json
import pathlib

from absl import flags

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names

from . import _cli
from . import _flags
from ._problems import Problems
from ._problems import all_together

FLAGS = flags.FLAGS

flags.DEFINE_string("model_dir", None, "A model's folder.")
_flags.define(Problems)
flags.DEFINE_integer("count", 128, "Problems of each module.")
flags.DEFINE_string("output_dir", "roles", "Folder to write.")
flags.DEFINE_string(
    "of", None, "roles or values. Default: roles, where the model has them."
)
flags.DEFINE_string(
    "attention", "encoder", "Which attention: encoder, decoder or cross."
)
flags.DEFINE_integer("layer", None, "Its layer, from 1. Default: the last.")
flags.DEFINE_integer("head", 1, "Its head, from 1.")
flags.DEFINE_integer("clusters", 20, "Number of clusters.")
flags.DEFINE_integer("seed", 0, "Seed of where the clusters start.")

# What the clusters are asked to tell, by its name in roles.json.
KINDS = {
    "character": "the character",
    "part_of_fraction": "the digit of a numerator from that of a denominator",
}


def main():
    if not FLAGS.model_dir or not FLAGS.modules:
        raise UsageError("--model_dir and --modules are needed.")
    if FLAGS.of is not None:
        check_names("--of", [FLAGS.of], ("roles", "values"))
    if FLAGS.clusters < 2:
        raise UsageError("--clusters must be at least 2.")
    problems = Problems(**_flags.values(Problems)).read(FLAGS.count)
    from tpt_keras.analysis.cells import collect_cells
    from tpt_keras.analysis.cells import layer_and_head
    from tpt_keras.analysis.clusters import cluster
    from tpt_keras.analysis.clusters import describe_clusters
    from tpt_keras.analysis.clusters import mutual_information
    from tpt_keras.analysis.fractions import fraction_parts
    from tpt_keras.files import whole_file
    from tpt_keras.models.load_model import load_model
    from tpt_keras.models.transformer import Transformer
    from tpt_keras.visualization.role_squares import draw_role_squares
    from tpt_keras.visualization.role_squares import write_role_page

    model = load_model(FLAGS.model_dir, classes=(Transformer,))
    layer, head = layer_and_head(model, FLAGS.layer, FLAGS.head)
    has_role = model.encoder_cells[0].self_attention.binding.has_role
    of = FLAGS.of or ("roles" if has_role else "values")
    cells = collect_cells(
        model, FLAGS.attention, [of], *all_together(problems)
    )[of]
    labels = cluster(cells.layers[layer][:, head], FLAGS.clusters, FLAGS.seed)
    clusters = describe_clusters(labels, cells)
    information = {
        kind: mutual_information(labels, cells.of(by_character))
        for kind, by_character in (
            ("character", cells.texts),
            ("part_of_fraction", list(map(fraction_parts, cells.texts))),
        )
    }
    title = (
        f"{of.capitalize()} of {', '.join(problems)}: {FLAGS.attention}, "
        f"layer {layer + 1}, head {head + 1}"
    )
    summary = ". ".join(told(kind, information[kind]) for kind in KINDS) + "."
    folder = pathlib.Path(FLAGS.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    described = cells.texts, cells.by_text(labels.tolist()), clusters
    write_role_page(*described, title, summary, folder / "roles.html")
    with whole_file(folder / "roles.png") as partial:
        draw_role_squares(*described, title, partial)
    with whole_file(folder / "roles.json") as partial:
        partial.write_text(
            json.dumps(
                {
                    "of": of,
                    "attention": FLAGS.attention,
                    "layer": layer + 1,
                    "head": head + 1,
                    "mutual_information": information,
                    "clusters": clusters,
                    "texts": described[0],
                    "labels": described[1],
                },
                indent=2,
            )
        )
    print(summary)
    print(folder / "roles.html")


def told(kind, information):
    """A sentence without its full stop."""
    if information is None:
        return "There are no two kinds of cells to tell of by fractions"
    return (
        f"How well the clusters tell {KINDS[kind]}: adjusted mutual "
        f"information {information['adjusted_mutual_information']:.3f} of "
        f"{information['cells']} cells, at most "
        f"{information['shuffled']:.3f} of shuffled clusters"
    )


if __name__ == "__main__":
    _cli.run(main)
