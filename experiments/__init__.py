"""Commands; `python -m experiments` lists them."""

import importlib.util
import sys

if importlib.util.find_spec("absl") is None:
    print(
        f"error: tpt_keras is not installed for {sys.executable}. Take the "
        "Python of its environment: after `make setup`, .venv/bin/python.",
        file=sys.stderr,
    )
    sys.exit(2)
