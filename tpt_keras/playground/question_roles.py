from numpy import unique

from tpt_keras.analysis.cells import collect_cells
from tpt_keras.analysis.clusters import cluster
from tpt_keras.analysis.clusters import describe_clusters
from tpt_keras.visualization.role_squares import role_page

_MOST_CLUSTERS = 6


def question_roles(model, question):
    """The roles of a question's characters, in every layer of the encoder.

    Args:
        model: A `Transformer`.
        question: A string.

    Returns:
        `Cells`.

    Raises:
        UsageError: If the model's binding has no roles, it is no
            `Transformer`, or it cannot read the question.
    """
    return collect_cells(model, "encoder", ["roles"], [question])["roles"]


def question_role_page(cells, layer, head):
    """A page of HTML that shows the clusters of one head's roles.

    Args:
        cells: What `question_roles` returned.
        layer: The layer's number, from 1 on.
        head: The head's number, from 1 on.

    Returns:
        The page's text.
    """
    roles = cells.layers[layer - 1][:, head - 1]
    count = min(_MOST_CLUSTERS, len(unique(roles, axis=0)))
    labels = cluster(roles, count)
    return role_page(
        cells.texts,
        cells.by_text(labels.tolist()),
        describe_clusters(labels, cells),
        f"Roles in the question: layer {layer}, head {head}",
        "Characters of one colour have roles that are alike.",
    )
