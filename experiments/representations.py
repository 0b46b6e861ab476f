r"""Measures what the vectors of one head hold.

    tpt_keras representations --measure=kept_variance \
        --modules=arithmetic__mixed --data_dir=data \
        --model=tp_transformer_mathematics

reconstruction (section 6.1 of the paper) fits an affine map from a head's
values to the states that they are maps of. It gives the squared error, divided
by the variance of the states.

kept_variance (section 7) gives the share of the variance of the tensor
products of fillers and roles that three compressions keep: the elementwise
product, the elementwise product after the best rotations, and as many
principal components.

Both are fitted on --train_characters characters and tested on other problems.
They write a table of all layers and heads of the encoder, as JSON and as PNG.
Needs pip install 'tpt_keras[analysis]'.
"""

import json
import pathlib

from absl import flags

from . import _flags

FLAGS = flags.FLAGS
check = _flags.check_analysis

_flags.define_analysis("representations", count=256)
# The vectors that each measure compares.
NAMES = {
    "reconstruction": ("states", "values"),
    "kept_variance": ("fillers", "roles"),
}
flags.DEFINE_enum("measure", "reconstruction", list(NAMES), "The measure.")
flags.DEFINE_multi_integer(
    "train_characters",
    [1500],
    "Number of characters to fit on. Given several times, it compares.",
    lower_bound=2,
)


def main():
    model, _, questions, _ = _flags.load_model_and_problems()
    from tpt_keras.analysis import representations
    from tpt_keras.analysis.attention import collect_vectors
    from tpt_keras.analysis.attention import shown_question
    from tpt_keras.files import write_text
    from tpt_keras.visualization.attention import draw_head_tables

    names = NAMES[FLAGS.measure]
    measure = getattr(representations, FLAGS.measure)
    lengths = [len(shown_question(model, question)) for question in questions]
    splits = {
        size: representations.split_characters(lengths, size, FLAGS.seed)
        for size in FLAGS.train_characters
    }
    _, vectors = collect_vectors(model, "encoder", names, questions)
    tables = {}
    for size, split in splits.items():
        for of_layer in zip(*(vectors[name] for name in names)):
            for name, of_heads in measure(*of_layer, *split).items():
                title = f"{name.replace('_', ' ')}, fitted on {size:,}"
                tables.setdefault(title, []).append(of_heads)
    for title, table in tables.items():
        means = ", ".join(f"{sum(row) / len(row):.4f}" for row in table)
        print(f"{title} characters, mean of each layer: {means}")
    path = pathlib.Path(FLAGS.output_dir, FLAGS.measure)
    write_text(path.with_suffix(".json"), json.dumps(tables))
    picture = path.with_suffix(".png")
    draw_head_tables(tables, "share of the variance", picture)
    print(picture)
