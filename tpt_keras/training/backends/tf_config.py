"""The processes that train together, from the variable TF_CONFIG."""

import json
import os

from tpt_keras.errors import UsageError


def read_workers() -> tuple[list[str], int]:
    """Returns the addresses of all workers, and the index of this one.

    The chief is the first.

    Raises:
        UsageError: If TF_CONFIG is missing or damaged, or its task is not one
            of the workers.
    """
    try:
        config = json.loads(os.environ["TF_CONFIG"])
        cluster, task = config["cluster"], config["task"]
        workers = {
            (job, index): address
            for job in ("chief", "worker")
            for index, address in enumerate(cluster.get(job, ()))
        }
        number = list(workers).index((task["type"], int(task["index"])))
    except (AttributeError, LookupError, TypeError, ValueError):
        raise UsageError(
            "The variable TF_CONFIG is missing or damaged. The "
            "`distribution` multi_worker_mirrored needs it on every machine: "
            "the addresses of all workers and the index of this one. See "
            "docs/training.md.",
            field="distribution",
        ) from None
    return list(workers.values()), number
