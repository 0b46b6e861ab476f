"""Which part this process has in a search, by keras-tuner's variables."""

import os

from tpt_keras.errors import UsageError

_VARIABLES = (
    "KERASTUNER_TUNER_ID",
    "KERASTUNER_ORACLE_IP",
    "KERASTUNER_ORACLE_PORT",
)


def role():
    """What this process does.

    Returns:
        `"alone"`; `"chief"`, who has the oracle and trains nothing; or
        `"worker"`.

    Raises:
        UsageError: If some of the variables are missing.
    """
    missing = [name for name in _VARIABLES if name not in os.environ]
    if len(missing) == len(_VARIABLES):
        return "alone"
    if missing:
        raise UsageError(
            "A search of several processes needs the environment variables "
            f"{', '.join(_VARIABLES)}. Missing: {', '.join(missing)}."
        )
    # As keras-tuner tells them apart.
    is_chief = "chief" in os.environ["KERASTUNER_TUNER_ID"]
    return "chief" if is_chief else "worker"
