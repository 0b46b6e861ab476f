r"""Clusters the roles of one head.

    tpt_keras roles --modules=arithmetic__mixed --data_dir=data \
        --model=tp_transformer_mathematics \
        --output_dir=roles

Writes roles.html and roles.png, the problems with every token on a square
in the colour of its cluster, and roles.json: the clusters, their most frequent
characters, and the adjusted mutual information between the clusters and two
classes, the token and the part of a fraction (numerator or denominator).
For a model without roles it clusters the values (--of=values). Needs
pip install 'tpt_keras[analysis]'.
"""

import json
import pathlib

from absl import flags

from . import _flags

FLAGS = flags.FLAGS
check = _flags.check_analysis

_flags.define_analysis("roles", count=128)
flags.DEFINE_enum(
    "of",
    None,
    ["roles", "values"],
    "The vectors. Default: roles, if the model has them.",
)
_flags.define_head()
flags.DEFINE_integer("clusters", 20, "Number of clusters.", lower_bound=2)


def main():
    model, problems, questions, answers = _flags.load_model_and_problems()
    layer, head = _flags.layer_and_head(model)
    from tpt_keras.analysis.attention import collect_vectors
    from tpt_keras.analysis.representations import cluster
    from tpt_keras.analysis.representations import describe_clusters
    from tpt_keras.analysis.representations import fraction_parts
    from tpt_keras.analysis.representations import mutual_information
    from tpt_keras.analysis.representations import split_by_text
    from tpt_keras.files import write_text
    from tpt_keras.visualization.roles import draw_role_squares
    from tpt_keras.visualization.roles import role_page

    has_role = model.encoder_cells[0].self_attention.binding.has_role
    of = FLAGS.of or ("roles" if has_role else "values")
    texts, vectors = collect_vectors(
        model, FLAGS.attention, [of], questions, answers
    )
    labels = cluster(vectors[of][layer][:, head], FLAGS.clusters, FLAGS.seed)
    symbols = [symbol for text in texts for symbol in text]
    parts = [part for text in texts for part in fraction_parts(text)]
    information = {
        "token": mutual_information(labels, symbols),
        "part of a fraction": mutual_information(labels, parts),
    }
    separator = model.tokenizer.separator
    clusters = describe_clusters(labels, texts, separator=separator)
    by_text = split_by_text(labels, texts)
    folder = pathlib.Path(FLAGS.output_dir)
    result = {
        "of": of,
        "attention": FLAGS.attention,
        "layer": layer + 1,
        "head": head + 1,
        "mutual_information": information,
        "clusters": clusters,
        "texts": texts,
        "labels": by_text,
    }
    write_text(folder / "roles.json", json.dumps(result))
    names = ", ".join(FLAGS.modules) or problems.dataset
    title = (
        f"{of.capitalize()} of {names}: {FLAGS.attention}, "
        f"layer {layer + 1}, head {head + 1}"
    )
    summary = "Adjusted mutual information " + ", ".join(
        f"with the {name} {each['adjusted_mutual_information']:.3f} "
        f"({each['tokens']} tokens)"
        for name, each in information.items()
        if each
    )
    shown = (texts, by_text, clusters, title)
    caption = f"Tokens of one colour have similar {of}. {summary}."
    write_text(folder / "roles.html", role_page(*shown, caption))
    draw_role_squares(*shown, folder / "roles.png")
    print(summary)
    print(folder / "roles.html")
