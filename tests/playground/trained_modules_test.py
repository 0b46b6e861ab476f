import json

import pytest

from tests.conftest import MODULE
from tpt_keras.errors import UsageError
from tpt_keras.playground.trained_modules import trained_modules


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"training": {"modules": [MODULE, "numbers__gcd", "mine"]}}, 2),
        # Of a text, and of a converted checkpoint.
        ({"training": {"text_file": "text.txt"}}, 0),
        ({"checkpoint": "best_eval_model.pt"}, 0),
    ],
)
def test_as_the_folder_says(tmp_path, config, expected):
    (tmp_path / "config.json").write_text(json.dumps(config))
    modules = trained_modules(tmp_path)
    assert modules == (MODULE, "numbers__gcd")[:expected]


def test_folders_that_do_not_say(tmp_path):
    assert trained_modules(tmp_path) == ()
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UsageError, match="damaged"):
        trained_modules(tmp_path)
