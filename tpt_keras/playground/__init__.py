"""The playground: a page on this machine that asks one model.

`python -m experiments.playground` starts it. Streamlit runs the script
`page.py` again on every click.
"""

import math

import numpy as np

from tpt_keras.analysis.roles import cluster
from tpt_keras.analysis.roles import describe_clusters
from tpt_keras.answer import OK
from tpt_keras.answer import explain
from tpt_keras.data_generators.mathematics.modules import MODULES
from tpt_keras.errors import UsageError
from tpt_keras.training.state.model_folder import read_training
from tpt_keras.visualization.roles import role_page

_MAX_CLUSTERS = 6


def trained_modules(model_dir):
    """Returns the modules of a model's training that have a generator.

    Args:
        model_dir: The model's folder.

    Returns:
        Tuple of names. It is empty if the folder names none, as that of a
        converted checkpoint.

    Raises:
        UsageError: If the folder's configuration is damaged.
    """
    modules = read_training(model_dir).get("modules", ())
    return tuple(module for module in modules if module in MODULES)


def best_answers(generator, question):
    """Returns the best answers to a question.

    Args:
        generator: A `Generator` with a `BeamSampler`.
        question: A string.

    Returns:
        List of pairs of an answer and its probability, the best first.

    Raises:
        UsageError: If the model cannot read the question.
    """
    [best] = generator.answer([question])
    if best.status != OK:
        config = generator.model.config
        limit = config.max_question_length
        raise UsageError(
            "The question "
            f"{explain(question, best.status, config.vocabulary, limit)}."
        )
    return [
        (answer.text, math.exp(answer.log_prob))
        for answer in (best, *best.alternatives)
    ]


def question_role_page(roles, layer, head):
    """Returns a page of HTML with the clusters of one head's roles.

    Args:
        roles: `CharacterVectors` of one question.
        layer: Number of the layer, from 1.
        head: Number of the head, from 1.

    Returns:
        The page's text.
    """
    vectors = roles.layers[layer - 1][:, head - 1]
    count = min(_MAX_CLUSTERS, len(np.unique(vectors, axis=0)))
    labels = cluster(vectors, count)
    return role_page(
        roles.texts,
        roles.by_text(labels.tolist()),
        describe_clusters(labels, roles),
        f"Roles in the question: layer {layer}, head {head}",
        "Characters of one colour have similar roles.",
    )
