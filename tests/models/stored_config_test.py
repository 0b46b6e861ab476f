import dataclasses
import json

import pytest

from tpt_keras.errors import UsageError
from tpt_keras.models import PRESETS
from tpt_keras.models.stored_config import from_stored
from tpt_keras.models.stored_config import kind_of
from tpt_keras.models.stored_config import to_stored


@pytest.mark.parametrize("preset", PRESETS)
def test_there_and_back(preset):
    stored = json.loads(json.dumps(to_stored(PRESETS[preset])))
    assert from_stored(stored) == PRESETS[preset]
    assert stored["kind"] == ("lstm" if "lstm" in preset else "transformer")


def test_of_a_kind_that_is_not_known():
    with pytest.raises(UsageError, match=r"kind of model 'mlp'.*lstm"):
        from_stored({"kind": "mlp"})


def test_of_a_version_that_knew_transformers_alone():
    stored = dataclasses.asdict(PRESETS["tp_transformer"])
    assert kind_of(stored) == "transformer"
    assert from_stored(stored) == PRESETS["tp_transformer"]
