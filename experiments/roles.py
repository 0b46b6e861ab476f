r"""Clusters the roles of one head.

    python -m experiments.roles --modules=arithmetic__mixed --data_dir=data \
        --model_dir=saved_models/tp_transformer_mathematics \
        --output_dir=roles

Writes roles.html and roles.png, the problems with every character on a square
in the colour of its cluster, and roles.json: the clusters, their most frequent
characters, and the adjusted mutual information between the clusters and two
classes, the character and the part of a fraction (numerator or denominator).
For a model without roles it clusters the values (--of=values).
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
flags.DEFINE_string("output_dir", "roles", "Folder to write.")
flags.DEFINE_integer("seed", 0, "Seed of everything that is random.")
flags.DEFINE_enum(
    "of",
    None,
    ["roles", "values"],
    "The vectors. Default: roles, if the model has them.",
)
flags.DEFINE_enum(
    "attention", "encoder", ["encoder", "decoder", "cross"], "The attention."
)
flags.DEFINE_integer("layer", None, "Its layer, from 1. Default: the last.")
flags.DEFINE_integer("head", 1, "Its head, from 1.")
flags.DEFINE_integer("clusters", 20, "Number of clusters.", lower_bound=2)

# Titles of the classes in roles.json.
CLASSES = {
    "character": "the character",
    "part_of_fraction": "the part of a fraction",
}


def check():
    _look_inside.require_analysis("matplotlib", "sklearn")


def main():
    questions, answers = _look_inside.read_problems()
    from tpt_keras.analysis.attention import collect_vectors
    from tpt_keras.analysis.roles import cluster
    from tpt_keras.analysis.roles import describe_clusters
    from tpt_keras.analysis.roles import fraction_parts
    from tpt_keras.analysis.roles import mutual_information
    from tpt_keras.files import whole_file
    from tpt_keras.visualization.page import write_page
    from tpt_keras.visualization.roles import draw_role_squares
    from tpt_keras.visualization.roles import role_page

    model = _look_inside.load_transformer()
    layer, head = _look_inside.layer_and_head(model)
    has_role = model.encoder_cells[0].self_attention.binding.has_role
    of = FLAGS.of or ("roles" if has_role else "values")
    questions, answers = _look_inside.readable(model, questions, answers)
    vectors = collect_vectors(model, FLAGS.attention, [of], questions, answers)[
        of
    ]
    labels = cluster(vectors.layers[layer][:, head], FLAGS.clusters, FLAGS.seed)
    clusters = describe_clusters(labels, vectors)
    information = {
        name: mutual_information(labels, vectors.flatten(by_text))
        for name, by_text in (
            ("character", vectors.texts),
            ("part_of_fraction", list(map(fraction_parts, vectors.texts))),
        )
    }
    data = ", ".join(FLAGS.modules) or FLAGS.dataset
    title = (
        f"{of.capitalize()} of {data}: {FLAGS.attention}, "
        f"layer {layer + 1}, head {head + 1}"
    )
    summary = " ".join(summarize(name, information[name]) for name in CLASSES)
    folder = pathlib.Path(FLAGS.output_dir)
    by_text = vectors.by_text(labels.tolist())
    _look_inside.write_json(
        folder / "roles.json",
        {
            "of": of,
            "attention": FLAGS.attention,
            "layer": layer + 1,
            "head": head + 1,
            "mutual_information": information,
            "clusters": clusters,
            "texts": vectors.texts,
            "labels": by_text,
        },
    )
    described = vectors.texts, by_text, clusters, title
    write_page(role_page(*described, summary), folder / "roles.html")
    with whole_file(folder / "roles.png") as partial:
        draw_role_squares(*described, partial)
    print(summary)
    print(folder / "roles.html")


def summarize(name, information):
    """Returns a sentence about the mutual information with a class."""
    if information is None:
        return (
            "The problems have no digits of both numerators and denominators, "
            "so nothing is measured about fractions."
        )
    return (
        f"Adjusted mutual information of clusters and {CLASSES[name]}: "
        f"{information['adjusted_mutual_information']:.3f} for "
        f"{information['characters']} characters (shuffled clusters: at most "
        f"{information['shuffled']:.3f})."
    )


if __name__ == "__main__":
    _cli.run(main, check)
