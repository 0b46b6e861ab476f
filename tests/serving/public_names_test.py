"""What `tpt_keras.serving` offers, without what it does not need."""

import pytest

from tests.imports_test import run_python
from tpt_keras import serving


@pytest.mark.parametrize("name", serving.__all__)
def test_every_name(name):
    assert getattr(serving, name).__name__ == name
    assert name in dir(serving)


def test_other_names():
    with pytest.raises(AttributeError, match="Client"):
        serving.Client  # noqa: B018


def test_names_of_0_3():
    """Where they were when `export` and `local_server` were modules."""
    from tpt_keras.serving.export import PRECISIONS
    from tpt_keras.serving.export import check_graph
    from tpt_keras.serving.export import export
    from tpt_keras.serving.local_server import LocalServer

    assert (export.__name__, check_graph.__name__) == ("export", "check_graph")
    assert PRECISIONS == ("float32", "bfloat16", "int8")
    assert LocalServer is serving.LocalServer


def test_names_cost_what_they_need():
    """The client over REST needs no TensorFlow."""
    loaded = run_python(
        "import sys\n"
        "import tpt_keras.serving\n"
        "heavy = ['keras', 'tensorflow', 'grpc', 'werkzeug', 'requests']\n"
        "print([m for m in heavy if m in sys.modules])\n"
        "from tpt_keras.serving import RestClient, Answer, ServingError\n"
        "print([m for m in heavy if m in sys.modules])\n"
    )
    assert loaded.splitlines() == ["[]", "['requests']"]
